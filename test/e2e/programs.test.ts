/** Programs written as a new user would, by the public names alone. Each learns, and is checked on rows that it has not seen. */

import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import * as compiledVariants from "../programs/compiled-variants.js";
import * as customParts from "../programs/custom-parts.js";
import * as diffusion from "../programs/diffusion.js";
import * as fineTune from "../programs/fine-tune.js";
import * as gpt from "../programs/gpt.js";
import * as lstm from "../programs/lstm.js";
import * as residualConvnet from "../programs/residual-convnet.js";
import * as service from "../programs/service.js";
import * as tabular from "../programs/tabular.js";
import * as vae from "../programs/vae.js";
import { effort } from "../support/effort.js";
import { repositoryRoot } from "../support/repository.js";

/** Neither the watchdog nor the threads change what a program learns; `npm run test:long` has both. */
const settings: Readonly<Record<string, string>> = effort({
  quick: { HOLDFAST_STALL_AFTER: "off", HOLDFAST_THREADS: "1" },
  thorough: {},
});
const environment = { ...process.env };
before(() => {
  Object.assign(process.env, settings);
});
after(() => {
  for (const variable of Object.keys(settings)) delete process.env[variable];
  Object.assign(process.env, environment);
});

test("a program has at most 120 lines, and no cast", () => {
  const folder = join(repositoryRoot, "test/programs");
  const files = readdirSync(folder);
  assert.equal(files.length, 10);
  for (const file of files) {
    const lines = readFileSync(join(folder, file), "utf8").trimEnd().split("\n");
    assert.ok(lines.length <= 120, `${file} has ${lines.length} lines`);
    assert.deepEqual(lines.filter(hasCast), [], file);
  }
});

/** A cast, a non-null assertion, `any`, or a comment that switches a check off. */
function hasCast(line: string): boolean {
  if (/@ts-|biome-ignore/.test(line)) return true;
  const isComment = /^\s*(\/\*\*|\*)/.test(line);
  const code = line.replace(/"[^"]*"|`[^`]*`/g, '""').replace(/\/\/.*$/, "");
  return !isComment && /\bas (?!const\b)[\w[{]|[\w)\]]!(?!=)|\bany\b/.test(code);
}

test("red proof: casts are found, and words like them are not", () => {
  const casts = ["x as Tensor; // why", "f(x!)", "list[0]!.y", "const x: any = 1;", "// @ts-expect-error"];
  assert.deepEqual(
    casts.filter((line) => !hasCast(line)),
    [],
  );
  const others = [
    "[1] as const",
    "if (a !== b || !c)",
    'throw new Error("as any!")',
    " * As any number",
    "x; // as is",
  ];
  assert.deepEqual(others.filter(hasCast), []);
});

test("a GPT reverses words that it has not seen", async () => {
  const { solved, loss } = await gpt.main();
  assert.ok(solved >= 0.8, `${100 * solved} % of the words, loss ${loss}`);
});

test("a residual convnet tells the direction of stripes by its running statistics", async () => {
  const { heldOutAccuracy } = await residualConvnet.main();
  assert.ok(heldOutAccuracy >= 0.9, `accuracy ${heldOutAccuracy}`);
});

test("an LSTM adds up marked numbers of sequences with unequal lengths", async () => {
  const { heldOutAccuracy } = await lstm.main();
  assert.ok(heldOutAccuracy >= 0.85, `accuracy ${heldOutAccuracy}`);
});

test("a variational autoencoder encodes blobs that it has not seen, and draws new ones", async () => {
  const { before, after, sampleRange } = await vae.main();
  assert.ok(after < 0.5 * before && sampleRange > 0.6, `loss ${before}, then ${after}; range ${sampleRange}`);
});

test("a diffusion model draws points on the whole ring from noise", async () => {
  const { radius, outside, imbalance } = await diffusion.main();
  assert.ok(
    Math.abs(radius - 1) < 0.1 && outside < 0.15 && imbalance < 0.25,
    `radius ${radius}, ${100 * outside} % outside, imbalance ${imbalance}`,
  );
});

test("a tabular model orders customers that it has not seen, and stops early", async () => {
  const { epochs, heldOutArea } = await tabular.main();
  assert.ok(heldOutArea > 0.9 && epochs < 40, `area ${heldOutArea} after ${epochs} epochs`);
});

test("custom layers, functions, optimizers, schedules and hooks train together", async () => {
  const { heldOutAccuracy, positiveShare, firstLr, lastLr } = await customParts.main();
  assert.ok(heldOutAccuracy >= 0.85, `accuracy ${heldOutAccuracy}`);
  assert.ok(positiveShare > 0.2 && positiveShare < 0.8, `${positiveShare} of the signs are positive`);
  assert.ok(lastLr < 0.5 * firstLr, `rates from ${firstLr} to ${lastLr}`);
});

test("a pretrained body learns a second task from 32 rows, better than a fresh one", async () => {
  const result = await fineTune.main();
  const { fromScratch, frozenBody, fineTuned } = result;
  assert.ok(
    Math.min(frozenBody, fineTuned) > 0.8 && fineTuned > fromScratch + 0.1,
    Object.values(result).join(),
  );
});

test("a service learns while it answers, and rejects bad requests", async () => {
  const { statuses, before, after } = await service.main();
  assert.deepEqual(statuses, [400, 400, 404]);
  assert.ok(before > 0.1 && after < 0.02, `error ${before}, then ${after}`);
});

test("a training learns alike eagerly, compiled, accumulated, recomputed and by a Trainer", async () => {
  const outcomes = await compiledVariants.main();
  const [first] = outcomes;
  assert.equal(outcomes.length, 6);
  for (const { way, heldOutError, weights } of outcomes) {
    assert.ok(heldOutError < 0.1, `${way}: ${heldOutError}`);
    const farthest = Math.max(
      ...weights.map((value, index) => Math.abs(value - (first?.weights[index] ?? 9))),
    );
    assert.ok(farthest < 1e-3, `${way}: a weight is ${farthest} off`);
  }
});
