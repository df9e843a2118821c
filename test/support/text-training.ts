/**
 * Trains a byte-level model from scratch on a text, and LoRA on another one, with `holdfast train lm`, and exports both as ONNX. A short test
 * does it with a tiny model, and a long test with one of a few million parameters.
 */

import assert from "node:assert/strict";
import { copyFileSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { brotliDecompressSync } from "node:zlib";
import { ByteTokenizer, type Device, exportOnnx, generate, loadPretrained, tensor } from "holdfast";
import { readRun } from "../../src/train/index.js";
import type { CommandHost } from "./command-host.js";
import type { Engine } from "./onnx/compare.js";
import { repositoryRoot } from "./repository.js";

export interface TextTraining {
  readonly config: Readonly<Record<string, unknown>>;
  /** Letters of the first text. */
  readonly letters: number;
  /** Options of both trainings. */
  readonly base: readonly string[];
  readonly lora: readonly string[];
}

/** The first and the last evaluation of a training. */
export interface Improvement {
  readonly before: number;
  readonly after: number;
  readonly parameters: number;
}

const austen = join(repositoryRoot, "examples/data/austen.txt.br");
const declaration = join(repositoryRoot, "test/fixtures/texts/declaration.txt");

/** Writes the texts to the folder of a host, trains there, and returns the perplexities on held-out text. */
export async function trainOnTexts(
  folder: string,
  host: CommandHost,
  { config, letters, base, lora }: TextTraining,
): Promise<{ readonly base: Improvement; readonly lora: Improvement }> {
  const text = brotliDecompressSync(readFileSync(austen)).toString();
  writeFileSync(join(folder, "austen.txt"), text.slice(0, letters));
  copyFileSync(declaration, join(folder, "declaration.txt"));
  writeFileSync(join(folder, "config.json"), JSON.stringify(config));
  const train = async (run: string, args: readonly string[]): Promise<Improvement> => {
    const command = ["train", "lm", "--device", "cpu", "--quiet", "--out", run, ...args];
    const { status, stderr } = await host.run(command);
    assert.equal(status, 0, stderr);
    return improvementIn(join(folder, run));
  };
  return {
    base: await train("base", ["--config", "config.json", "--data", "austen.txt", ...base]),
    lora: await train("lora", [
      ...["--model", "base/model", "--data", "declaration.txt", "--held-out", "0.15"],
      ...["--lora", "--merge", "--lora-targets", "all-linear", ...lora],
    ]),
  };
}

function improvementIn(run: string): Improvement {
  const { evaluations, parameters } = readRun(run).results as {
    readonly evaluations: readonly { readonly perplexity: number }[];
    readonly parameters: number;
  };
  const [before, after] = [evaluations[0]?.perplexity ?? 0, evaluations.at(-1)?.perplexity ?? Infinity];
  return { before, after, parameters };
}

/** Checks that the ONNX file of a model's folder continues a prompt with the model's own tokens. Returns the text. */
export async function requireSameTokens(
  device: Device,
  model: string,
  { prompt, tokens, engine }: { readonly prompt: string; readonly tokens: number; readonly engine: Engine },
): Promise<string> {
  const tokenizer = new ByteTokenizer();
  const loaded = loadPretrained(model, { device, frozen: true });
  const [expected] = await generate(loaded, [prompt], { tokenizer, maxNewTokens: tokens });
  const file = join(model, "model.onnx");
  exportOnnx(
    loaded,
    file,
    { ids: tensor([[1, 2, 3]], { dtype: "i32", device }) },
    {
      dynamicAxes: { ids: { 0: "batch", 1: "sequence" } },
      outputNames: ["logits"],
    },
  );
  const run = await engine.open(file);
  const ids = [...tokenizer.encode(prompt)];
  const found: number[] = [];
  while (found.length < tokens) {
    const { logits } = await run({ ids: { dtype: "i32", shape: [1, ids.length], data: ids } });
    const [, , vocabulary = 0] = logits?.shape ?? [];
    const last = Array.from(logits?.data ?? [], Number).slice(-vocabulary);
    const next = last.indexOf(Math.max(...last));
    found.push(next);
    ids.push(next);
  }
  assert.deepEqual(found, expected?.tokens, `${engine.name}, ${model}`);
  return prompt + tokenizer.decode(found);
}
