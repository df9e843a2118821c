/** The generated market has something to learn on every scale, and nothing after its returns are shuffled. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { effort } from "../../../test/support/effort.js";
import { permutation } from "../../kernels/index.js";
import { generateMarket, type Market } from "../bars/generate.js";
import { makeSamples } from "./features.js";
import { oracleAccuracy } from "./oracle.js";
import { scales } from "./scales.js";

for (const seed of effort({ quick: [42], thorough: [1, 42] })) {
  const market = generateMarket({ bars: 200_000, seed });

  test(`seed ${seed}: an oracle that knows the regimes is clearly above the majority class, on every scale`, () => {
    const accuracy = oracleAccuracy(market);
    assert.equal(accuracy.samples, 3202);
    assert.ok(accuracy.oracle > 0.66 && accuracy.oracle < 0.72, `oracle ${accuracy.oracle}`);
    assert.ok(accuracy.majority > 1 / 3 && accuracy.majority < 0.4, `majority ${accuracy.majority}`);
    for (const { scale, oracle, majority } of accuracy.scales) {
      assert.ok(oracle > majority + 0.2, `scale ${scale}: ${oracle} for ${majority}`);
    }
  });

  test(`seed ${seed}: with the returns shuffled the oracle is no better than the majority class`, () => {
    const { oracle, majority, scales } = oracleAccuracy(withShuffledReturns(market));
    assert.ok(oracle < majority + 0.02, `${oracle} for ${majority}`);
    for (const at of scales) assert.ok(at.oracle < at.majority + 0.05, `scale ${at.scale}: ${at.oracle}`);
  });
}

test("the oracle predicts the labels of the samples", () => {
  const market = generateMarket({ bars: 20_000, seed: 1 });
  const { count, labels } = makeSamples(market.bars, { stride: 7 });
  const accuracy = oracleAccuracy(market, { stride: 7 });
  assert.equal(accuracy.samples, count);
  accuracy.scales.forEach(({ majority }, scale) => {
    const counts = [0, 0, 0];
    for (let sample = 0; sample < count; sample++) counts[labels[sample * scales.length + scale]!]!++;
    assert.equal(majority, Math.max(...counts) / count);
  });
});

test("with too few bars for a sample there is no accuracy", () => {
  const { samples, oracle } = oracleAccuracy(generateMarket({ bars: 100, seed: 1 }));
  assert.deepEqual([samples, oracle], [0, Number.NaN]);
});

/** The same returns in another order, under regimes that no longer belong to them. */
function withShuffledReturns(market: Market): Market {
  const { close } = market.bars;
  const order = permutation({ seed: 7, id: 0 }, close.length - 1);
  const shuffled = new Float64Array(close.length);
  shuffled[0] = close[0]!;
  order.forEach((from, at) => {
    shuffled[at + 1] = shuffled[at]! * (close[from + 1]! / close[from]!);
  });
  return { ...market, bars: { ...market.bars, close: shuffled } };
}
