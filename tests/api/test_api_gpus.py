"""/gpus: who holds the memory is shown to anybody, and the GPUs are read when somebody asks."""

from __future__ import annotations

import threading

import httpx2

from agent.api.gpu_schema import GpusDocument
from tests.api.api_house import House, eventually, page
from tests.cli.fake_agent import gpu, gpus, holder


def test_the_same_gpus_are_shown_over_the_socket_and_over_tcp(
    house: House, local: httpx2.Client, tcp: httpx2.Client
) -> None:
    lost = gpu(1, state="gpu_lost", why="GPU is lost", remedy="reset it", holders=None, used_mib=None, free_mib=None)
    house.gpus = gpus(gpu(holders=[holder(), holder(7, mib=None, kind="ghost", since=None)]), lost)
    house.publish(page())
    answers = [client.get("/gpus") for client in (local, tcp)]
    assert [(each.status_code, each.json()) for each in answers] == [(200, house.gpus)] * 2
    GpusDocument.model_validate_json(answers[0].content)
    assert house.seen == 2


def test_where_nobody_reads_them_they_are_read_because_somebody_asks(house: House, local: httpx2.Client) -> None:
    house.publish(page())
    answers: list[httpx2.Response] = []
    asking = threading.Thread(target=lambda: answers.append(local.get("/gpus")))
    asking.start()
    eventually(lambda: house.seen == 1, "the loop is told")
    house.gpus = gpus(gpu())
    house.publish(page())
    asking.join()
    assert answers[0].json() == house.gpus


def test_what_nobody_has_read_is_called_so(house: House, local: httpx2.Client) -> None:
    house.publish(page())
    house.board.close()  # nothing is waited for any more
    answer = local.get("/gpus")
    assert (answer.status_code, answer.json()["state"], answer.json()["devices"]) == (200, "not_read", [])
    GpusDocument.model_validate_json(answer.content)


def test_before_anything_is_published_there_is_nothing_to_show(house: House, local: httpx2.Client) -> None:
    assert local.get("/gpus").status_code == 503
