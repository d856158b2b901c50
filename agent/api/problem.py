"""Every error that the API answers: an RFC 9457 problem document."""

from __future__ import annotations

import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from agent.api.schema import ProblemDocument

PROBLEM_JSON = "application/problem+json"
Meanings = dict[int | str, dict[str, Any]]
"""For OpenAPI: what a route answers, by status."""
PROBLEM_SCHEMA = {PROBLEM_JSON: {"schema": {"$ref": "#/components/schemas/ProblemDocument"}}}
TEXT_SCHEMA = {"text/plain": {"schema": {"type": "string"}}}
UNKNOWN: Meanings = {404: {"description": "no such server", "content": PROBLEM_SCHEMA}}
ANY: Meanings = {"default": {"description": "a problem", "content": PROBLEM_SCHEMA}}


class Problem(Exception):  # noqa: N818  the word of RFC 9457
    """Ends a request with a problem document. `more`: members of schema.ProblemDocument beside the usual ones."""

    def __init__(
        self,
        status: int,
        detail: str,
        headers: Mapping[str, str] | None = None,
        more: Mapping[str, object] | None = None,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.headers = headers
        self.more = more or {}

    def document(self) -> bytes:
        """The body. `type` is about:blank: the status says what kind it is, the title is its phrase."""
        members = {"type": "about:blank", "title": HTTPStatus(self.status).phrase, "status": self.status}
        return json.dumps({**members, "detail": self.detail, **self.more}).encode()

    def response(self) -> Response:
        """The whole answer."""
        return Response(self.document(), self.status, self.headers, PROBLEM_JSON)


def problems(meanings: dict[int, str]) -> Meanings:
    """For OpenAPI: the problems of a route, by status."""
    return {status: {"description": text, "content": PROBLEM_SCHEMA} for status, text in meanings.items()}


class ProblemsApi(FastAPI):
    """FastAPI, with the problem document among its schemas."""

    def openapi(self) -> dict[str, Any]:
        """The OpenAPI document."""
        document = super().openapi()
        schema = ProblemDocument.model_json_schema(ref_template="#/components/schemas/{model}")
        parts = schema.pop("$defs", {})
        document["components"]["schemas"].update({**parts, "ProblemDocument": schema})
        return document


def add_problems(app: FastAPI) -> None:
    """Whatever goes wrong is answered with a problem document."""

    async def own(_: Request, problem: Exception) -> Response:
        assert isinstance(problem, Problem)  # noqa: S101  registered for this type
        return problem.response()

    async def framework(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)  # noqa: S101  registered for this type
        detail = f"{request.method} {request.url.path}: {error.detail}"
        return Problem(error.status_code, detail, error.headers).response()

    async def invalid(_: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)  # noqa: S101  registered for this type
        # Where and what, not the value itself: it could be a secret in the wrong place.
        faults = [{"where": ".".join(map(str, each["loc"])), "what": str(each["msg"])} for each in error.errors()]
        detail = "; ".join(f"{each['where']}: {each['what']}" for each in faults)
        return Problem(422, detail, more={"faults": faults}).response()

    async def bug(_: Request, __: Exception) -> Response:
        return Problem(500, "a bug in gpuagent; its log says more").response()

    app.add_exception_handler(Problem, own)
    app.add_exception_handler(HTTPException, framework)
    app.add_exception_handler(RequestValidationError, invalid)
    app.add_exception_handler(Exception, bug)
