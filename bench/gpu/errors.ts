/**
 * `npm run bench:gpu -- --only errors`: every op of the table, values and gradients, in every dtype on the
 * GPU against f64 on the CPU; the oracle's cases and CrossAsset's trajectories against PyTorch; and the bits
 * of dropout's masks against the CPU's. Figures are in units of the tolerances in test/tolerances.ts: 1 is
 * exactly at the tolerance.
 */

import { spawn } from "node:child_process";
import { once } from "node:events";
import { cpus } from "node:os";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { Device } from "holdfast";
import { dropout } from "../../src/ops/index.js";
import { readOptions } from "../../test/support/command-line.js";
import { type Deviation, errorColumns, noDeviation, type OpErrorLine, worseOf } from "./deviation.js";
import { commonArguments, commonOptions, openGpu } from "./options.js";
import { convolutionOracleError, opOracleError, readTrajectories, trajectoryError } from "./oracle-errors.js";
import { Results } from "./results.js";

const options = readOptions(import.meta.url, {
  ...commonOptions,
  /** Processes that share the op cases. */
  processes: { type: "string", default: String(Math.max(1, Math.min(12, cpus().length - 2))) },
  draws: { type: "string", default: "8" },
  elements: { type: "string", default: "120" },
  seconds: { type: "string", default: "180" },
  only: { type: "string", default: "" },
  /** "ops", "oracle", "dropout": the checks to run. */
  parts: { type: "string", default: "ops,oracle,dropout" },
});
const checks = options.parts.split(",");

/** By the op case's name, then by column. */
type Table = Map<string, Map<string, Deviation & { readonly calls: number }>>;

async function runShare(share: string, table: Table): Promise<void> {
  const script = fileURLToPath(new URL("./op-errors.js", import.meta.url));
  const { draws, elements, seconds, only } = options;
  const args = ["--share", share, "--draws", draws, "--elements", elements, "--seconds", seconds];
  const child = spawn(process.execPath, [script, ...args, "--only", only, ...commonArguments(options)], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  for await (const text of createInterface({ input: child.stdout })) {
    const { name, column, share: shareText, error, what } = JSON.parse(text) as OpErrorLine;
    const row = table.get(name) ?? new Map();
    const sum = row.get(column) ?? { ...noDeviation, calls: 0 };
    const deviation = { share: Number(shareText), error: error ?? Infinity, what };
    row.set(column, { ...worseOf(sum, deviation), calls: sum.calls + 1 });
    table.set(name, row);
  }
  const [code] = child.exitCode === null ? await once(child, "close") : [child.exitCode];
  if (code !== 0) throw new Error(`Share ${share} of the op cases ended with ${code}.`);
}

const shown = (share: number): string =>
  share === 0 ? "exact" : share === Infinity ? "wrong" : share < 0.001 ? "<.001" : share.toFixed(3);

async function checkOps(results: Results): Promise<void> {
  const table: Table = new Map();
  const processes = Number(options.processes);
  const shares = Array.from({ length: processes }, (_, share) => `${share}/${processes}`);
  await Promise.all(
    shares.map((share) => results.attempt(`op cases, share ${share}`, () => runShare(share, table))),
  );
  const names = [...table.keys()].sort();
  const cell = (name: string, column: string): string => {
    const deviation = table.get(name)?.get(column);
    return deviation ? shown(deviation.share) : "–";
  };
  results.line(`${names.length} op cases: the worst of values and gradients, in units of the tolerance`);
  results.table([
    ["op", ...errorColumns],
    ...names.map((name) => [name, ...errorColumns.map((column) => cell(name, column))]),
  ]);
  const all = [...table].flatMap(([name, row]) =>
    [...row].map(([column, entry]) => ({ name, column, ...entry })),
  );
  for (const entry of all.filter(({ share }) => share > 1))
    results.line(`${entry.name} in ${entry.column}: ${entry.what}`);
  for (const column of errorColumns) {
    const entries = all.filter((entry) => entry.column === column);
    const worst = entries.reduce((a, b) => (b.share > a.share ? b : a), {
      ...noDeviation,
      name: "none",
      calls: 0,
    });
    const wrong = entries.filter(({ share }) => share > 1).length;
    const calls = entries.reduce((sum, entry) => sum + entry.calls, 0);
    const text = `${entries.length} op cases in ${column}, ${calls} calls: worst ${shown(worst.share)} of the tolerance (${worst.name})`;
    results.require(wrong === 0 && entries.length > 0, `${text}, ${wrong} above it`);
  }
}

type Float = "f32" | "f64";

const oracleChecks: readonly (readonly [string, (device: Device, float: Float) => Deviation])[] = [
  ["152 op cases", opOracleError],
  ["14 convolutions and pools", convolutionOracleError],
  ...readTrajectories().map(
    (entry) =>
      [
        `CrossAsset ${entry.name}`,
        (device: Device, float: Float) => trajectoryError(device, entry, float),
      ] as const,
  ),
];

async function checkOracle(results: Results): Promise<void> {
  const rows = new Map(oracleChecks.map(([name]) => [name, [name]]));
  for (const float of ["f32", "f64"] as const) {
    await results.attempt(`the oracle in ${float}`, async () => {
      const gpu = openGpu(options, { device: { memory: "2GiB" } });
      for (const [name, check] of oracleChecks) {
        await results.attempt(`oracle, ${name} in ${float}`, () => {
          const { share, what } = check(gpu.device, float);
          rows.get(name)?.push(shown(share));
          if (share > 1) results.line(`${name} in ${float}: ${what}`);
          results.require(share <= 1, `oracle, ${name} in ${float}: ${shown(share)} of the tolerance`);
        });
      }
      gpu.close();
    });
  }
  results.table([["oracle", "f32", "f64"], ...rows.values()]);
}

/** Masks for probabilities of all sizes, on arrays of odd lengths: both devices keep the same elements. */
async function checkDropout(results: Results): Promise<void> {
  await results.attempt("dropout", () => {
    const cpu = new Device("cpu", { threads: 1, stallAfter: "off", print: () => {} });
    const gpu = openGpu(options, { device: { memory: "2GiB" } });
    const maskOn = (device: Device, length: number, p: number): ArrayLike<number> =>
      device.step(() => {
        device.reseed(0x0123456789abcdefn);
        const x = device.fromHost(new Float32Array(length).fill(1), [length], "f32");
        return device.apply(dropout, [x, device.randomState], { p }).dataSync();
      });
    let [elements, other] = [0, 0];
    try {
      for (const length of [1, 7, 5003, 1 << 20]) {
        for (const p of [2 ** -15, 0.1, 0.25, 1 / 3, 0.5, 0.75, 0.999, 1 - 2 ** -16]) {
          const [mask, same] = [maskOn(gpu.device, length, p), maskOn(cpu, length, p)];
          elements += length;
          for (let at = 0; at < length; at++) if (mask[at] !== same[at]) other++;
        }
      }
    } finally {
      gpu.close();
      cpu.close();
    }
    results.require(other === 0, `dropout: ${other} of ${elements} elements are kept on only one device`);
  });
}

const results = new Results("errors", options);
if (checks.includes("ops")) await checkOps(results);
if (checks.includes("oracle")) await checkOracle(results);
if (checks.includes("dropout")) await checkDropout(results);
results.finish();
