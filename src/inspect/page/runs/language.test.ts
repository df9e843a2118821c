/** Figures of language models, from metrics as `holdfast train lm` writes them, and from others that lack them. */

import assert from "node:assert/strict";
import test from "node:test";
import * as fc from "fast-check";
import type { JsonRecord } from "../wire.js";
import { languageOf } from "./language.js";

const metrics = [
  { step: 0, data: { rows: 10, tokens: 250, countedTokens: 240, evaluationRows: 2 } },
  { step: 0, evaluation: { loss: 5.5, perplexity: 244.7, tokens: 40 } },
  { step: 0, texts: [{ prompt: "One", text: "??" }] },
  { step: 5, epoch: 0, loss: 4, samplesPerSecond: 8, tokensPerSecond: 200 },
  { step: 5, evaluation: { loss: 2, perplexity: 7.39, tokens: 40 } },
  {
    step: 5,
    texts: [
      { prompt: "One", text: " for" },
      { prompt: "Two", text: " to" },
    ],
  },
];

test("evaluations are in order, samples of the newest step are first, and tokens are counted by row", () => {
  const { evaluations = [], samples = [], tokensPerSample } = languageOf(metrics) ?? {};
  assert.deepEqual(
    evaluations.map(({ step, perplexity }) => [step, perplexity]),
    [
      [0, 244.7],
      [5, 7.39],
    ],
  );
  assert.deepEqual(
    samples.map(({ step, prompt, text }) => `${step} ${prompt}${text}`),
    ["5 One for", "5 Two to", "0 One??"],
  );
  assert.equal(tokensPerSample, 25);
  assert.equal(languageOf(metrics.slice(3))?.tokensPerSample, 25, "from an epoch's speeds");
});

test("another job has no figures of language models, and strange records are left out", () => {
  assert.equal(languageOf([{ step: 3, epoch: 0, loss: 1, samplesPerSecond: 5 }]), undefined);
  const strange = languageOf([
    { step: 1, evaluation: { perplexity: "high" }, texts: [{ prompt: 3 }, null, "text"] },
    { evaluation: { perplexity: 3 } },
  ]);
  assert.deepEqual(strange, { evaluations: [], samples: [], tokensPerSample: undefined });
  fc.assert(
    fc.property(fc.array(fc.object()), (records) => {
      languageOf(records as JsonRecord[]);
    }),
  );
});
