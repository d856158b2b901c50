"""The room on the disks that a server writes to: what readings over time mean, and what they lead to."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from agent.core import storage
from agent.core.model import Ask, Exit, Fill, Health, Policy, Relieve, Save, Space, Stage, Terminate, Volume
from agent.core.storage import GIB, SHM
from tests.core.script import UP, Script, need

STOP = Policy(on_disk_low="stop")
DISK = "/srv/cache"


def space(free_gib: float | None, at: float = 0.0, **other: object) -> Space:
    """A reading of a disk of a TiB."""
    free_mib = None if free_gib is None else free_gib * GIB
    fields = {"path": DISK, "at": at, "total_mib": 1024 * GIB, "free_mib": free_mib, **other}
    return Space(**fields)  # type: ignore[arg-type]  # each has its own type


def after(*readings: Space, policy: Policy = STOP) -> Volume:
    """What is known after these."""
    volumes: tuple[Volume, ...] = ()
    for reading in readings:
        volumes = storage.follow(volumes, (reading,), policy)
    (volume,) = volumes
    return volume


# -- readings ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("free_gib", "fill"), [(500, Fill.OK), (10, Fill.OK), (9.9, Fill.WARN), (2, Fill.WARN), (1.9, Fill.LOW)]
)
def test_the_amounts_tell_enough_from_little_and_too_little(free_gib: float, fill: Fill) -> None:
    assert after(space(free_gib)).fill is fill


def test_a_small_file_system_is_judged_by_its_parts() -> None:
    small = [space(free_gib, total_mib=10 * GIB) for free_gib in (1.1, 0.9, 0.1)]
    assert [after(each).fill for each in small] == [Fill.OK, Fill.WARN, Fill.LOW]


def test_what_the_operator_says_is_said_of_disks_and_not_of_shared_memory() -> None:
    policy = replace(STOP, disk_warn_mib=60_000, disk_low_mib=50_000)
    assert after(space(50), policy=policy).fill is Fill.WARN
    assert after(space(40), policy=policy).fill is Fill.LOW
    assert after(space(40, path=SHM, total_mib=64 * GIB), policy=policy).fill is Fill.OK
    assert after(space(40), policy=replace(STOP, disk_low_mib=50_000)).fill is Fill.LOW


def test_a_state_does_not_flicker_around_its_limit() -> None:
    readings = (1.9, 2.1, 9.0, 10.5, 10.9, 11.1, 10.5, 9.9)
    states = [after(*(space(each) for each in readings[:n])).fill for n in range(1, len(readings) + 1)]
    expected = [Fill.LOW, Fill.LOW, Fill.LOW, Fill.WARN, Fill.WARN, Fill.OK, Fill.OK, Fill.WARN]
    assert states == expected


def test_inodes_count_as_much_as_bytes_where_they_are_counted() -> None:
    assert after(space(500, total_inodes=10**8, free_inodes=900)).fill is Fill.LOW
    assert after(space(500, total_inodes=10**8, free_inodes=9_000)).fill is Fill.WARN
    assert after(space(500, total_inodes=100, free_inodes=50)).fill is Fill.OK
    assert after(space(500, total_inodes=None, free_inodes=None)).fill is Fill.OK


def test_how_long_it_lasts_is_told_from_the_last_minutes() -> None:
    filling = [space(500 - n, at=5.0 * n) for n in range(13)]  # 0.2 GiB/s
    assert after(*filling).lasts_s == pytest.approx(488 / 0.2)
    still = [space(488, at=60.0 + 5.0 * n) for n in range(60)]
    assert after(*filling, *still).lasts_s is None
    assert after(space(500)).lasts_s is None
    assert after(space(500), space(499, at=1.0)).lasts_s is None  # too short to tell


def test_the_inodes_may_end_first() -> None:
    readings = [space(500, at=10.0 * n, total_inodes=10**8, free_inodes=10**6 - 10_000 * n) for n in range(4)]
    assert after(*readings).lasts_s == pytest.approx(970)


def test_a_disk_that_frees_up_or_fills_in_years_is_not_said_to_end() -> None:
    assert after(space(500), space(600, at=60.0)).lasts_s is None
    assert after(space(500), space(500 - 1e-5, at=60.0)).lasts_s is None


def test_another_file_system_in_its_place_begins_anew() -> None:
    assert after(space(500), space(100, at=60.0, total_mib=200 * GIB)).lasts_s is None


def test_a_reading_that_fails_forgets_nothing_and_says_so() -> None:
    volume = after(space(1.0), space(None, at=5.0, why="no answer within 2 s"))
    assert (volume.fill, volume.unread, volume.space.free_mib) == (Fill.LOW, "no answer within 2 s", 1024)
    assert storage.marks((volume,)) == {"storage-not-seen": "/srv/cache: no answer within 2 s"}


def test_the_same_reading_again_is_no_further_one() -> None:
    once = after(space(5.0, at=1.0))
    assert storage.follow((once,), (space(5.0, at=1.0),), STOP) == (once,)
    assert storage.follow((once,), None, STOP) == (once,)
    assert storage.follow((once,), (), STOP) == ()


def test_a_mark_names_the_disk_the_figures_and_the_time() -> None:
    low = after(space(3.0), space(1.5, at=20.0))
    assert storage.marks((low, after(space(500)))) == {
        "disk-low": "/srv/cache: 1.5 GiB of 1024.0 GiB free, full in 20 s at the present rate"
    }


# -- what follows --------------------------------------------------------------------------------------


def serving(policy: Policy = STOP) -> Script:
    """A server that is ready, on a disk with room."""
    one = Script(policy)
    one.boot(UP)
    one.look(storage=(space(500, at=one.now),))
    one.launched()
    one.running(storage=(space(500, at=one.now),))
    one.probe(Health.OK)
    assert one.state.stage is Stage.READY
    return one


def test_a_server_is_ended_cleanly_before_its_disk_is_full_and_says_why_with_figures() -> None:
    one = serving()
    effects = one.running(storage=(space(1.5, at=one.now),))
    assert Terminate() in effects
    assert one.state.stage is Stage.STOPPING
    one.exited(Exit(code=0))
    one.look(storage=(space(1.5, at=one.now),))
    state = one.state
    assert (state.stage, state.blocked, state.saved.gave_up) == (Stage.FAILED, True, None)
    assert state.cause is not None
    assert state.cause.slug == "disk_low"
    assert state.why == state.cause.text == "/srv/cache: 1.5 GiB of 1024.0 GiB free: less than 2.0 GiB"


def test_it_goes_on_by_itself_once_there_is_room_for_a_while_again() -> None:
    one = serving()
    one.running(storage=(space(1.5, at=one.now),))
    one.exited(Exit(code=0))
    one.look(storage=(space(1.5, at=one.now),))
    since = one.state.since
    for free_gib in (2.5, 9.0, 1.0):  # more than too little is not enough yet; nor is a new figure news
        one.look(storage=(space(free_gib, at=one.now),))
        assert (one.state.stage, one.state.since) == (Stage.FAILED, since)
    one.look(storage=(space(10.5, at=one.now),))
    one.look(storage=(space(10.5, at=one.now),))
    assert one.state.stage is Stage.STARTING
    assert one.state.saved.attempt == 1


def test_by_default_a_healthy_server_goes_on_whatever_the_disk() -> None:
    one = serving(Policy())
    one.running(storage=(space(0.0, at=one.now),))
    assert one.state.stage is Stage.READY
    assert one.state.volumes[0].fill is Fill.LOW


@pytest.mark.parametrize(
    ("now", "worth"),
    [
        ((space(500),), False),
        ((space(495),), False),
        ((space(480),), True),
        ((space(520),), True),
        ((space(None, why="no answer"),), True),
        ((), True),
        ((space(500, path=SHM),), True),
        ((space(500, total_inodes=1000, free_inodes=985),), True),
        ((space(500, total_inodes=1000, free_inodes=995),), False),
    ],
)
def test_a_reading_is_worth_a_look_at_once_when_a_hundredth_has_moved(now: tuple[Space, ...], worth: bool) -> None:
    inodes = {"total_inodes": 1000, "free_inodes": 1000} if now and now[0].total_inodes else {}
    assert storage.moved((space(500, **inodes),), now) is worth


RELIEF = "clear-cache.service"


@pytest.mark.parametrize("policy", [Policy(relief=RELIEF), replace(STOP, relief=RELIEF)], ids=["report", "stop"])
def test_what_makes_room_is_started_once_each_time_that_there_comes_to_be_too_little(policy: Policy) -> None:
    one = serving(policy)
    assert Relieve() in one.running(storage=(space(1.5, at=one.now),))
    assert Relieve() not in one.running(storage=(space(1.4, at=one.now),))
    if one.state.stage is Stage.READY:
        assert Relieve() not in one.running(storage=(space(500, at=one.now),))
        assert Relieve() in one.running(storage=(space(1.0, at=one.now),))


def test_nothing_is_started_where_the_operator_names_nothing_nor_for_shared_memory() -> None:
    one = serving(Policy())
    assert Relieve() not in one.running(storage=(space(1.5, at=one.now),))
    one = serving(Policy(relief=RELIEF))
    assert Relieve() not in one.running(storage=(space(500, at=one.now), space(0.0, at=one.now, path=SHM)))


def test_shared_memory_that_is_full_ends_nobody() -> None:
    one = serving()
    one.running(storage=(space(500, at=one.now), space(0.0, at=one.now, path=SHM)))
    assert one.state.stage is Stage.READY


def test_unknown_ends_nobody_and_what_was_too_little_keeps_it_from_going_on() -> None:
    one = serving()
    one.running(storage=(space(None, at=one.now, why="no answer"),))
    assert one.state.stage is Stage.READY
    one.running(storage=(space(1.5, at=one.now),))
    one.exited(Exit(code=0))
    one.look(storage=(space(None, at=one.now, why="no answer"),))
    assert one.state.stage is Stage.FAILED


def test_what_an_administrator_starts_meanwhile_is_not_ended_on_an_old_reading() -> None:
    one = serving()
    one.running(storage=(space(1.5, at=one.now),))
    one.exited(Exit(code=0))
    one.look(storage=(space(1.5, at=one.now),))
    assert one.state.stage is Stage.FAILED
    frozen = (space(None, at=one.now, why="no answer"),)
    one.running(invocation="theirs-1", ordered=False, storage=frozen)
    one.running(invocation="theirs-1", ordered=False, storage=frozen)
    assert one.state.stage is Stage.STARTING
    one.running(invocation="theirs-1", ordered=False, storage=(space(1.5, at=one.now),))
    assert one.state.stage is Stage.STOPPING


def test_nothing_is_launched_where_there_is_too_little_or_nobody_knows() -> None:
    one = Script(STOP)
    one.boot(UP)
    one.look(storage=None)
    assert one.state.stage is Stage.WAITING
    one.look(storage=(space(1.0, at=one.now),))
    assert one.state.stage is Stage.FAILED
    one.look(storage=(space(500, at=one.now),))
    one.look(storage=(space(500, at=one.now),))
    assert one.state.stage is Stage.STARTING


def test_a_further_need_is_shown_beside_it() -> None:
    one = Script(STOP)
    one.boot(UP)
    one.look(needs=(need("mount", heals=True),), storage=(space(1.0, at=one.now),))
    assert one.state.stage is Stage.FAILED
    assert [each.name for each in one.state.seen.needs or ()] == ["mount", "disk"]


def test_an_operators_stop_and_start_count_as_ever() -> None:
    one = serving()
    one.running(storage=(space(1.5, at=one.now),))
    one.ask(Ask.STOP)
    one.store()
    one.exited(Exit(code=0))
    one.look(storage=(space(1.5, at=one.now),))
    assert one.state.stage is Stage.DOWN


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("policy", [STOP, Policy()], ids=["stop", "report"])
def test_whatever_the_disk_does_in_whichever_stage_no_law_is_broken(seed: int, policy: Policy) -> None:
    """`Script` checks the laws after each step. What ends a healthy server is too little room that was chosen to."""
    rng, one = random.Random(seed), Script(policy)
    one.boot(UP)
    for _ in range(150):
        free = rng.choice([None, 0.5, 1.9, 3.0, 9.0, 12.0, 500.0, 500.0])
        disks = rng.choice([None, (), (space(free, at=one.now),), (space(free, at=one.now),)])
        before = one.stage
        if one.did(Save) and rng.random() < 0.9:
            one.store(rng.choice([None, None, None, "disk full"]))
        elif before is Stage.STARTING and one.state.launching:
            one.launched() if rng.random() < 0.8 else one.look(tree=None, storage=disks)
        elif before in (Stage.STARTING, Stage.READY, Stage.UNHEALTHY):
            one.running(storage=disks)
            assert one.stage is before or (policy is STOP and one.state.cause and one.state.cause.slug == "disk_low")
            if one.stage is not Stage.STOPPING:
                one.probe(rng.choice([Health.OK, Health.OK, Health.REFUSED]))
        elif before is Stage.STOPPING and one.state.main is not None:
            one.exited(Exit(code=0))
        elif one.state.deadline is not None and rng.random() < 0.2:
            one.ring()
        else:
            one.look(storage=disks)
    stages = {Stage.FAILED} if policy is not STOP else set[Stage]()
    assert one.stage not in stages  # by default it goes on, whatever comes
