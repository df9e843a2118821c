/**
 * `npm run bench:gpu -- --only recorder`: the cost of recording a run. The CrossAsset trainer alternates between runs with and without a recorder, on the GPU or with `--device cpu` on the CPU. Prints the host's time for a step and the step's time; then the time of the recorder alone.
 *
 *   node --conditions=holdfast-source dist/bench/gpu/recorder.js --device cpu --batch 256 --rows 1024 --epochs 2 --rounds 3    on the CPU
 */

import { mkdtempSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { crossasset, formatBytes, manualSeed, nn, optim, TensorDataset, Trainer } from "holdfast";
import { inspectionFiles, RunRecorder, type TrainingWatcher } from "../../src/train/index.js";
import { readOptions } from "../../test/support/command-line.js";
import { deviceOption, openAsked } from "./job-data.js";
import { commonOptions, count } from "./options.js";
import { Results } from "./results.js";
import { C, F, makeRows, median, S } from "./training.js";

const options = readOptions(import.meta.url, {
  ...commonOptions,
  ...deviceOption,
  batch: { type: "string", default: "256" },
  rows: { type: "string", default: "16384" },
  epochs: { type: "string", default: "20" },
  rounds: { type: "string", default: "7" },
  steps: { type: "string", default: "400000" },
});
const [batch, rowCount] = [count("batch", options.batch), count("rows", options.rows)];
const [epochs, rounds] = [count("epochs", options.epochs), count("rounds", options.rounds)];
const alone = count("steps", options.steps);
const [maxShare, maxUs] = [0.01, 2];

interface Round {
  /** From call to return, without the first step of each plan; the median. */
  readonly hostUs: number;
  /** Of all steps after the first epoch. */
  readonly stepUs: number;
}

/** As in the job. */
function watcherOf(recorder: RunRecorder | undefined, hosts: number[]): TrainingWatcher {
  return {
    sent: ({ step, epoch, samples, lr, hostMs }) => {
      hosts.push(hostMs);
      const [time, loss] = [Date.now(), Number.NaN];
      recorder?.noteSent({ step, time, loss, lr, fold: 0, epoch, samples, hostMs });
    },
    lossRead: (loss) => recorder?.noteLoss(loss),
    planned: (compiled) => recorder?.notePlans(compiled),
  };
}

async function main(): Promise<void> {
  const results = new Results("recorder", options);
  const folder = mkdtempSync(join(tmpdir(), "holdfast-recorder-bench-"));
  const { device, close } = openAsked(options, options.device, { precision: "f32" });
  try {
    const { x, labels } = makeRows(rowCount, "taught");
    results.line(
      `${device.runtime.device.name}: ${epochs} epochs of ${Math.ceil(rowCount / batch)} steps of ${batch} rows, ${rounds} rounds, alternating with and without a recorder`,
    );
    const train = async (isRecorded: boolean, round: number): Promise<Round> => {
      manualSeed(1);
      const model = new crossasset.CrossAsset().to(device);
      const optimizer = new optim.AdamW(model.parameters());
      const path = mkdtempSync(join(folder, `${round}-`));
      const recorder = isRecorded ? new RunRecorder({ folder: path, runtime: device.runtime }) : undefined;
      const hosts: number[] = [];
      const data = new TensorDataset(
        { values: x, shape: [rowCount, S, F] },
        { values: labels, shape: [rowCount, S] },
      );
      let [begunMs, begunSteps] = [0, 0];
      const trainer = new Trainer({
        ...{ device, model, optimizer, data, batchSize: batch, epochs, clipNorm: 1 },
        loss: (rows, labels) =>
          nn.functional.crossEntropy(model.forward(rows).reshape([-1, C]), labels.reshape([-1])),
        watcher: watcherOf(recorder, hosts),
        onEpoch: ({ epoch }, { progress }) => {
          if (epoch === 0) [begunMs, begunSteps] = [performance.now(), progress.step];
        },
      });
      const { steps } = await trainer.run();
      const stepUs = (1000 * (performance.now() - begunMs)) / (steps - begunSteps);
      recorder?.close();
      trainer.close();
      data.release(device);
      optimizer.release();
      for (const parameter of model.parameters()) parameter.release();
      return { hostUs: 1000 * median(hosts.slice(begunSteps)), stepUs };
    };
    const [without, withOne]: [Round[], Round[]] = [[], []];
    for (let round = 0; round < rounds; round++) {
      without.push(await train(false, round));
      withOne.push(await train(true, round));
      results.line(
        `round ${round + 1}: a step takes ${without.at(-1)!.stepUs.toFixed(1)} µs without and ${withOne.at(-1)!.stepUs.toFixed(1)} with; the host's call ${without.at(-1)!.hostUs.toFixed(1)} and ${withOne.at(-1)!.hostUs.toFixed(1)}`,
      );
    }
    const stepUs = median(without.map((run) => run.stepUs));
    const alongUs = median(withOne.map((run, index) => run.stepUs - without[index]!.stepUs));
    const aloneUs = timeAlone(folder, device.runtime, results);
    results.line();
    results.line(
      `a step takes ${stepUs.toFixed(1)} µs; the median difference with a recorder is ${alongUs.toFixed(2)} µs, and the recorder alone takes ${aloneUs.toFixed(3)} µs`,
    );
    results.line();
    const share = aloneUs / stepUs;
    if (options.device === "cpu")
      results.aim(share < maxShare, `the record is ${(100 * share).toFixed(4)} % of a CPU step; 1 % allowed`);
    else
      results.aim(
        aloneUs < maxUs,
        `the record takes ${aloneUs.toFixed(3)} µs of the host's time a step; ${maxUs} allowed`,
      );
  } finally {
    results.finish();
    close();
    rmSync(folder, { recursive: true, force: true });
  }
}

/** All work of the recorder for a step, over many steps: rows, writes to disk, memory samples by its clock. */
function timeAlone(
  folder: string,
  runtime: ConstructorParameters<typeof RunRecorder>[0]["runtime"],
  results: Results,
): number {
  const path = mkdtempSync(join(folder, "alone-"));
  const recorder = new RunRecorder({ folder: path, runtime });
  const { sent, lossRead: pending } = watcherOf(recorder, []);
  const hosts: number[] = [];
  for (let group = 0; group < 10; group++) {
    const startedAt = performance.now();
    for (let step = 0; step < alone / 10; step++) {
      sent({ step: group * (alone / 10) + step + 1, epoch: 0, samples: batch, lr: 1e-3, hostMs: 0.01 });
      // Losses arrive some steps late, as in a run.
      if (step % 64 === 63) for (let late = 0; late < 64; late++) pending(1 / (step + 1));
    }
    hosts.push((1000 * (performance.now() - startedAt)) / (alone / 10));
  }
  recorder.close();
  const bytes = statSync(join(path, inspectionFiles.steps)).size;
  results.line(
    `${alone} steps recorded alone: ${hosts.map((us) => us.toFixed(3)).join(" ")} µs a step, by tenths; ${formatBytes(bytes)} of step log`,
  );
  return median(hosts);
}

await main();
