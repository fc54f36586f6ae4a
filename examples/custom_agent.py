# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""An agent of your own whose model calls are captured: every call carries the prefix of its rollout.

Whoever runs the rollout calls the agent below ``/ng-rollout/<rollout id>``. The agent puts the same prefix on
its model calls (OpenAI SDK, blocking; Anthropic SDK, async) and on the calls it makes to itself. The server is
a ``gym-objstore proxy``, or a Gym model server.

Run: ``python examples/custom_agent.py --server http://127.0.0.1:8400 --model my-model --rollout-id 0-0``
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import threading
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

from anthropic import AsyncAnthropic
from openai import OpenAI

from gym_objstore.correlation import follow, openai_base_url, parse_path, rollout_prefix, rollout_url

if TYPE_CHECKING:
    from anthropic.types import MessageParam

API_KEY = os.environ.get("MODEL_API_KEY", "none")


def draft(server: str, model: str, rollout_id: str | None, task: str) -> str:
    """Ask the model with the OpenAI SDK."""
    with OpenAI(base_url=openai_base_url(server, rollout_id), api_key=API_KEY) as client:
        answer = client.chat.completions.create(model=model, messages=[{"role": "user", "content": task}])
    return answer.choices[0].message.content or ""


async def review(server: str, model: str, rollout_id: str | None, text: str) -> str:
    """Ask the model with the async Anthropic SDK, streaming."""
    question: MessageParam = {"role": "user", "content": f"Is this right? {text}"}
    async with (
        AsyncAnthropic(base_url=rollout_url(server, rollout_id), api_key=API_KEY) as client,
        client.messages.stream(model=model, max_tokens=200, messages=[question]) as stream,
    ):
        return await stream.get_final_text()


class Agent(BaseHTTPRequestHandler):
    """Answers ``/run`` with a draft and its review, which it asks of itself at ``/review``."""

    server: AgentServer

    def do_POST(self) -> None:
        """Serve one step of the agent."""
        route = parse_path(self.path)
        step, rollout_id = (route.path, route.rollout_id) if route else (self.path, None)
        said = self.rfile.read(int(self.headers["content-length"])).decode()
        place = self.server.model_server, self.server.model, rollout_id
        if step == "/run":
            text = draft(*place, said)
            result = {"draft": text, "review": post(self.server.url + follow(self.path, "/review"), text)}
        else:
            result = {"review": asyncio.run(review(*place, said))}
        body = json.dumps(result).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing about each request."""


class AgentServer(ThreadingHTTPServer):
    """The agent on a free port."""

    def __init__(self, model_server: str, model: str) -> None:
        super().__init__(("127.0.0.1", 0), Agent)
        self.model_server, self.model = model_server, model
        self.url = f"http://127.0.0.1:{self.server_port}"


def post(url: str, text: str) -> str:
    """Send a text and return the answer's."""
    with urllib.request.urlopen(urllib.request.Request(url, text.encode())) as answer:  # noqa: S310 - http, our own
        body: bytes = answer.read()
    return body.decode()


def main() -> None:
    """Run one rollout."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--server", required=True, help="URL of the proxy or the Gym model server")
    parser.add_argument("--model", required=True)
    parser.add_argument("--rollout-id", required=True, help="such as 0-0; its calls are captured under it")
    parser.add_argument("--task", default="What is the capital of France?")
    asked = parser.parse_args()
    with AgentServer(asked.server, asked.model) as agent:
        threading.Thread(target=agent.serve_forever, daemon=True).start()
        print(post(f"{agent.url}{rollout_prefix(asked.rollout_id)}/run", asked.task))
        agent.shutdown()


if __name__ == "__main__":
    main()
