# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""A torch training loop over the finished rollouts of a run, which may be killed at any time and is started again.

Run: ``python examples/train_torch.py --url s3://bucket/rl --run-id run-7 --checkpoint checkpoint.pt``

Every rollout is learned from exactly once by the model that ends up in the checkpoint. Rollouts are marked with the
name of the next checkpoint, the checkpoint is saved, and only then are they retired. What was marked for a checkpoint
that never came to be is trained again, from the state before it; a new name for each attempt keeps the two apart.
Prints each step, its loss and its rollouts, each checkpoint, and in the end how many rollouts were learned from.
"""

from __future__ import annotations

import argparse
import os
import uuid
from pathlib import Path

import torch
from torch.utils.data import DataLoader

from gym_objstore import TrainerClient
from gym_objstore_torch import Batch, RolloutDataset, collate

VOCABULARY = 256


class Trainer:
    """A bigram policy, its optimizer, and which rollouts they have learned from."""

    def __init__(self, client: TrainerClient, checkpoint: Path) -> None:
        self._client, self._checkpoint = client, checkpoint
        self._policy = torch.nn.Embedding(VOCABULARY, VOCABULARY)
        self._optimizer = torch.optim.AdamW(self._policy.parameters())
        self.trained: list[str] = []
        self._new: list[str] = []

    def resume(self) -> None:
        """Take up the checkpoint, if there is one, and finish retiring what it contains."""
        if self._checkpoint.exists():
            state = torch.load(self._checkpoint)
            self._policy.load_state_dict(state["policy"])
            self._optimizer.load_state_dict(state["optimizer"])
            self.trained = state["trained"]
            self._client.retire_consumed_now([state["name"]])
            print(f"resumed {state['name']}: {len(self.trained)} rollouts learned from")

    def step(self, batch: Batch) -> float:
        """Make the tokens of rewarded rollouts more likely."""
        token_ids = batch["token_ids"] % VOCABULARY
        log_probs = self._policy(token_ids[:, :-1]).log_softmax(-1).gather(-1, token_ids[:, 1:, None]).squeeze(-1)
        rewards = batch["rewards"].nan_to_num()  # a receipt may have none
        advantages = (rewards - rewards.mean())[:, None]
        loss = -(advantages * log_probs * batch["mask"][:, 1:]).sum() / batch["mask"].sum()
        self._optimizer.zero_grad()
        loss.backward()
        self._optimizer.step()
        self._new += batch["rollout_ids"]
        return float(loss.detach())

    def save(self) -> None:
        """Make a checkpoint safe, and only then retire what it has learned from."""
        if not self._new:
            return
        name = f"{len(self.trained) + len(self._new)}-{uuid.uuid4().hex}"
        self._client.mark_consumed_now(self._new, name)
        self.trained, self._new = self.trained + self._new, []
        state = {"policy": self._policy.state_dict(), "optimizer": self._optimizer.state_dict()}
        aside = self._checkpoint.with_name(f"{self._checkpoint.name}.part")
        with aside.open("wb") as file:
            torch.save({"name": name, "trained": self.trained, **state}, file)
            file.flush()
            os.fsync(file.fileno())
        aside.replace(self._checkpoint)
        print(f"saved {name}", flush=True)
        self._client.retire_consumed_now([name])


def main() -> None:
    """Train on everything that has finished."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--url", help="default: GYM_OBJSTORE_URL")
    parser.add_argument("--run-id", help="default: GYM_OBJSTORE_RUN_ID")
    parser.add_argument("--checkpoint", type=Path, default=Path("checkpoint.pt"))
    parser.add_argument("--batch-size", type=int, default=4)
    parser.add_argument("--save-every", type=int, default=2, help="steps between two checkpoints")
    asked = parser.parse_args()

    client = TrainerClient(asked.url, asked.run_id)
    trainer = Trainer(client, asked.checkpoint)
    trainer.resume()
    dataset = RolloutDataset(client, client.finished_now(), seed=7)
    for number, batch in enumerate(DataLoader(dataset, asked.batch_size, collate_fn=collate), start=1):
        print(f"step {number}: loss {trainer.step(batch):.4f}, {' '.join(batch['rollout_ids'])}", flush=True)
        if number % asked.save_every == 0:
            trainer.save()
    trainer.save()
    print(f"done: {len(trainer.trained)} rollouts learned from")
    client.close_now()


if __name__ == "__main__":
    main()
