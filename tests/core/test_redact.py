"""Secrets are hidden, and ordinary text is left alone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.core.redact import redact

CANARY = "Zq9canaryW7x"


@pytest.mark.parametrize(
    "text",
    [
        f"--api-key {CANARY}",
        f"--api-key={CANARY}",
        f"--api_key {CANARY} --port 80",
        f"API_KEY={CANARY}",
        f"export HF_TOKEN='{CANARY}'",
        f'{{"api_key": "{CANARY}"}}',
        f'{{"apiKey":"{CANARY}","n":1}}',
        f'{{\\"api_key\\": \\"{CANARY}\\"}}',
        f"{{'password': '{CANARY}'}}",
        f"['--api-key', '{CANARY}', '--port', '80']",
        f'["--hf-token", "{CANARY}"]',
        f"api_key: {CANARY}",
        f"password: {CANARY}",
        f'--password "two {CANARY} words"',
        f"PGPASSWORD={CANARY}",
        f"AWS_SECRET={CANARY}",
        f"authToken={CANARY}",
        f"OPENAI_APIKEY={CANARY}",
        f"auth={CANARY}",
        f"token={CANARY}",
        f"GET /v1?api_key={CANARY}&n=1",
        f"Authorization: Bearer {CANARY}",
        f"authorization: Basic {CANARY}",
        f"curl -H 'Authorization: Bearer {CANARY}'",
        f"sent bearer {CANARY} to the hub",
        f"https://user:{CANARY}@example.org/x",
        f"http://{CANARY}@proxy:3128",
        f"https://u:p@{CANARY}@example.org",
        f"hf_{CANARY}abc",
        f"key sk-proj-{CANARY}",
        f"(hf_{CANARY})",
    ],
)
def test_a_secret_in_any_common_form_is_hidden(text: str) -> None:
    hidden = redact(text)
    assert CANARY not in hidden
    assert "***" in hidden


@pytest.mark.parametrize(
    "text",
    [
        "--max-tokens 5",
        "n_tokens = 5",
        "print_info: EOG token             = 50 '<|tool_response>'",
        "load: control-looking token:     50 '<|tool_response>' was not control-type",
        "loaded meta data with 23 key-value pairs and 21 tensors",
        "tokenizer.ggml.bos_token_id u32              = 2",
        "llama_kv_cache: size = 40.00 MiB, K (f16): 20.00 MiB",
        "key not found in model: general.architecture",
        "slot 0 | task-1 | disk-full",
        "monkey=5 turkey: 7",
        "n_past = 7, token = 1234",
        "https://example.org/a@b",
        "listening on http://127.0.0.1:8080",
        "a bearer token is required",
        "--ssl-key-file /etc/ssl/x.pem",
        "srv          init: security: no API key is set and CORS allows all origins",
        "",
    ],
)
def test_ordinary_text_is_left_alone(text: str) -> None:
    assert redact(text) == text


def test_what_stands_around_a_secret_stays() -> None:
    assert redact("llama-server --api-key abc --port 80") == "llama-server --api-key *** --port 80"
    assert redact("https://u:p@example.org/x") == "https://***@example.org/x"
    assert redact('{"token": "abc", "n": 1}') == '{"token": "***", "n": 1}'
    assert redact("--no-auth --port 80") == "--no-auth --port 80"


def test_given_values_are_hidden_wherever_they_stand_the_longest_first() -> None:
    assert redact("path /models/abcdef/abcdefgh", ["abcdef", "abcdefgh"]) == "path /models/***/***"


def test_given_values_that_are_too_short_to_be_secrets_are_left() -> None:
    assert redact("on port 80 of 1 host", ["80", "1", ""]) == "on port 80 of 1 host"


@pytest.mark.parametrize(
    "unit", ["a-", "key=", 'key="', "://", "token ", "--key ", "sk-", "bearer ", "\\", "a@", "key: '"]
)
def test_long_hostile_text_is_done_in_one_go(unit: str) -> None:
    # Quadratic time would take minutes here and run into the suite's own limit.
    redact(unit * (400_000 // len(unit)))


@given(st.text(), st.lists(st.text(max_size=9), max_size=3))
def test_no_text_raises(text: str, values: list[str]) -> None:
    redact(text, values)


@given(st.text(alphabet=st.characters(codec="ascii", exclude_characters="\0"), max_size=40))
def test_a_given_value_never_survives(around: str) -> None:
    assert CANARY not in redact(f"{around}{CANARY}{around}", [CANARY])
