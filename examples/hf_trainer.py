"""Hugging Face's Trainer with one line of Runwatch: a tiny GPT-2 that learns to count.

    python examples/hf_trainer.py --steps 200 --output out/

Started again with the same --output it resumes from the newest checkpoint of the Trainer, as the
next attempt of the same run. RUNWATCH_URL and RUNWATCH_TOKEN name the service; without them a
spool is written.
"""

import argparse
from pathlib import Path

import torch
from torch import Tensor
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

from runwatch_hooks.adapters.huggingface import RunwatchCallback

NUM_TOKENS, LENGTH = 32, 16


class Counting(Dataset[dict[str, Tensor]]):
    """Rows that count upwards from anywhere, in steps of one to three."""

    def __len__(self) -> int:
        return 96

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        tokens = (index + (1 + index % 3) * torch.arange(LENGTH)) % NUM_TOKENS
        return {"input_ids": tokens, "labels": tokens}


def main() -> None:
    arguments = parse()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    model = GPT2LMHeadModel(
        GPT2Config(
            vocab_size=NUM_TOKENS, n_positions=LENGTH, n_embd=32, n_layer=2, n_head=2,
            bos_token_id=None, eos_token_id=None,
        )
    )  # fmt: skip
    trainer = Trainer(
        model,
        TrainingArguments(
            output_dir=str(arguments.output),
            max_steps=arguments.steps,
            learning_rate=1e-3,
            per_device_train_batch_size=8,
            gradient_accumulation_steps=3,
            max_grad_norm=0.5,
            logging_steps=1,
            eval_strategy="steps",
            eval_steps=10,
            save_steps=10,
            save_total_limit=2,
            report_to=[],
            use_cpu=True,
            disable_tqdm=True,
        ),
        train_dataset=Counting(),
        eval_dataset=Counting(),
        callbacks=[RunwatchCallback("hf-trainer", allow=("checkpoint", "lower_lr", "stop"))],
    )
    trainer.train(resume_from_checkpoint=any(arguments.output.glob("checkpoint-*")))
    trainer.state.save_to_json(str(arguments.output / "history.json"))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--output", type=Path, default=Path("hf-output"))
    return parser.parse_args()


if __name__ == "__main__":
    main()
