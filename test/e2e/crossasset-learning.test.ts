/** The CrossAsset job learns where there is something to learn, and not where there is nothing. */

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { crossasset } from "holdfast";
import { openDevice } from "../support/devices.js";
import { effort } from "../support/effort.js";
import { makeFolder } from "../support/folders.js";
import { testDevice } from "../support/test-device.js";

/** What is enough to learn from, and what a person would give it. */
const {
  bars,
  epochs: epochCount,
  ...sizes
} = effort<
  Pick<crossasset.JobSettings, "folds" | "epochs"> &
    Partial<crossasset.JobSettings> & { readonly bars: number }
>({
  quick: { bars: 24_000, stride: 30, folds: 1, epochs: 4, width: 32, layers: 1, lr: 0.004 },
  thorough: { bars: 60_000, folds: 1, epochs: 3, width: 128 },
});
const { folds } = sizes;

describe("a job", { skip: testDevice === "emulator" && "minutes of training on an emulator" }, () => {
  const device = openDevice({ memory: "2GiB", ...effort({ quick: { threads: 1 }, thorough: {} }) });
  const market = crossasset.generateBars({ bars, seed: 42 });
  const cacheFolder = makeFolder();
  const learn = (more: Partial<crossasset.JobSettings>) =>
    crossasset.runJob({
      ...{ device, bars: market, source: "the generator", cacheFolder, listen: () => undefined },
      settings: { ...crossasset.defaultSettings, ...sizes, batch: 32, ...more },
    });

  test("is clearly above the commonest class on every fold", async () => {
    const results = await learn({ epochs: epochCount });
    assert.equal(results?.folds.length, folds);
    for (const { fold, test: figures, perScale, epochs } of results?.folds ?? []) {
      const { accuracy, majority } = figures;
      assert.ok(accuracy > majority + 0.08, `fold ${fold}: ${accuracy} against ${majority}`);
      assert.equal(perScale.length, 12);
      assert.ok((epochs.at(-1)?.loss ?? 9) < (epochs[0]?.loss ?? 0) / 2, "the loss has halved");
    }
  });

  test("red proof: with the labels of other samples it is not", async () => {
    const results = await learn({ epochs: 2, shuffledLabels: true });
    for (const { fold, test: figures } of results?.folds ?? []) {
      const { accuracy, majority } = figures;
      assert.ok(accuracy < majority + 0.03, `fold ${fold}: ${accuracy} against ${majority}`);
    }
  });
});
