/**
 * `holdfast train lm` on two ranks: the bits of one process with the same shards, with batches of uneven texts, several of them in a step, and
 * moments that are split.
 *
 * @mostlyWaits
 */

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { promisify } from "node:util";
import { CheckpointStore, readRun } from "../../src/train/index.js";
import { holdfastProgram } from "../support/crossasset-runs.js";
import { makeFolder } from "../support/folders.js";
import { lacksMpi, startRanks } from "../support/ranks.js";
import { plainDevice, shortRunFlags } from "../support/short-process.js";

const sizes = { hidden_size: 16, intermediate_size: 24, num_hidden_layers: 1, num_attention_heads: 2 };
const config = { model_type: "llama", vocab_size: 257, ...sizes, max_position_embeddings: 32 };

/** Tensors, and figures of the training without times. */
function bitsOf(run: string): Readonly<Record<string, string>> {
  const { tensors } = new CheckpointStore(join(run, "checkpoints")).load("latest");
  const { epochs, evaluations } = readRun(run).results as {
    readonly epochs: readonly { readonly loss: number }[];
    readonly evaluations: readonly { readonly loss: number }[];
  };
  return {
    losses: JSON.stringify([epochs, evaluations].map((list) => list.map(({ loss }) => loss))),
    ...Object.fromEntries(
      [...tensors]
        .map(([name, { bytes }]): [string, string] => [name, Buffer.from(bytes).toString("hex")])
        .sort(),
    ),
  };
}

test("a language model on 2 ranks has the bits of one process", { skip: lacksMpi("mpich") }, async () => {
  const folder = makeFolder();
  const [texts, model] = [join(folder, "sums.jsonl"), join(folder, "config.json")];
  const lines = Array.from({ length: 23 }, (_, index) => ({
    prompt: `${index}+${index % 7}=`,
    completion: `${index + (index % 7)}${"!".repeat(index % 5)}`,
  }));
  writeFileSync(texts, lines.map((line) => `${JSON.stringify(line)}\n`).join(""));
  writeFileSync(model, JSON.stringify(config));
  const commandOf = (out: string, more: readonly string[] = []): string[] => [
    ...[...shortRunFlags, holdfastProgram, "train", "lm", "--device", "cpu", "--config", model],
    ...["--data", texts, "--length", "24", "--held-out", "0.2", "--epochs", "2", "--batch", "5"],
    ...["--accumulate", "2", "--lr", "0.01", "--shards", "2", "--quiet", "--out", out, ...more],
  ];
  const [alone, shared] = [join(folder, "alone"), join(folder, "shared")];
  const env = { ...process.env, ...plainDevice };
  const ranks = startRanks({
    ...{ mpi: "mpich", size: 2 },
    command: [process.execPath, commandOf(shared, ["--shard-optimizer"])],
  });
  await promisify(execFile)(process.execPath, commandOf(alone), { env });
  const { status, output } = await ranks.result;
  assert.equal(status, 0, output);
  const expected = bitsOf(alone);
  assert.match(expected["losses"] ?? "", /^\[\[\d+\.\d+,\d+\.\d+\],\[\d/);
  assert.ok(Object.keys(expected).length > 10, Object.keys(expected).join());
  assert.deepEqual(bitsOf(shared), expected);
});
