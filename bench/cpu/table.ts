/** The benchmark's table, its targets, and a check that all contenders trained the same model. */

import type { Outcome } from "./contenders.js";
import type { Report } from "./report.js";

type Reports = ReadonlyMap<string, Report>;

const columns = [
  "contender",
  "version",
  "step ms",
  "best",
  "× ours",
  "peak MiB",
  "GEMM ms",
  "GFLOP/s",
  "first losses",
];

export function tableOf(outcomes: readonly Outcome[]): string {
  const ours = reportsOf(outcomes).get("holdfast")?.step?.stepMs;
  const rows = outcomes.map((outcome) =>
    "report" in outcome ? cellsOf(outcome.report, ours) : [outcome.name, outcome.absence],
  );
  // The text of an absent contender may run over the columns.
  const widths = columns.map((title, index) => {
    const cells = rows.filter((row) => index === 0 || row.length > 2).map((row) => row[index] ?? "");
    return Math.max(...[title, ...cells].map((cell) => cell.length));
  });
  const isText = (index: number): boolean => index < 2 || index === columns.length - 1;
  const line = (cells: readonly string[]): string =>
    cells
      .map((cell, index) => (isText(index) ? cell.padEnd(widths[index]!) : cell.padStart(widths[index]!)))
      .join("  ")
      .trimEnd();
  return [columns, ...rows].map(line).join("\n");
}

function cellsOf({ peer, version, step, gemmMs, gflops }: Report, ours: number | undefined): string[] {
  const stepCells = step
    ? [
        step.stepMs.toFixed(0),
        step.bestStepMs.toFixed(0),
        ours ? (step.stepMs / ours).toFixed(2) : "–",
        (step.peakRssBytes / 2 ** 20).toFixed(0),
      ]
    : ["–", "–", "–", "–"];
  const losses = step?.losses.slice(0, 3).map((loss) => loss.toFixed(4)) ?? [];
  return [peer, version, ...stepCells, gemmMs.toFixed(1), gflops.toFixed(1), losses.join(" ")];
}

/** The targets with the measured figures; targets of absent contenders are omitted. */
export function barsOf(outcomes: readonly Outcome[]): string {
  const reports = reportsOf(outcomes);
  const stepMs = (name: string) => reports.get(name)?.step?.stepMs;
  const peak = (name: string) => reports.get(name)?.step?.peakRssBytes;
  const stepBytes = (name: string) => reports.get(name)?.step?.stepBytes;
  const gflops = (name: string) => reports.get(name)?.gflops;
  const bars: readonly [string, number | undefined, number][] = [
    ["step: jax-js's time over Holdfast's", ratio(stepMs("jax-js"), stepMs("holdfast")), 3],
    ["step: PyTorch's time over Holdfast's", ratio(stepMs("torch"), stepMs("holdfast")), 0.5],
    [
      "step: PyTorch's time over Holdfast's with HOLDFAST_BLAS",
      ratio(stepMs("torch"), stepMs("holdfast-blas")),
      1,
    ],
    [
      "step: Holdfast's eager time over compiled",
      ratio(stepMs("holdfast"), stepMs("holdfast-compiled")),
      1.3,
    ],
    ["step: jax-js's time over Holdfast's compiled", ratio(stepMs("jax-js"), stepMs("holdfast-compiled")), 4],
    [
      "step: PyTorch's time over Holdfast's compiled with HOLDFAST_BLAS",
      ratio(stepMs("torch"), stepMs("holdfast-compiled-blas")),
      1,
    ],
    [
      "memory of a step: Holdfast's eager over compiled",
      ratio(stepBytes("holdfast"), stepBytes("holdfast-compiled")),
      1 / 0.7,
    ],
    ["GEMM: Holdfast's rate over OpenBLAS's", ratio(gflops("holdfast"), gflops("openblas")), 0.55],
    ["peak memory: PyTorch's over Holdfast's", ratio(peak("torch"), peak("holdfast")), 1],
    [
      "peak memory: PyTorch's over Holdfast's with HOLDFAST_BLAS",
      ratio(peak("torch"), peak("holdfast-blas")),
      1,
    ],
  ];
  return bars
    .filter(([, value]) => value !== undefined)
    .map(([what, value = 0, target]) => {
      const result = value >= target ? "met" : "NOT met";
      return `  ${what.padEnd(66)} ${value.toFixed(2).padStart(6)}, target at least ${Number(target.toFixed(2))}: ${result}`;
    })
    .join("\n");
}

/**
 * Contenders whose first losses differ from those of the first contender with losses: they trained another
 * model.
 */
export function differingOf(outcomes: readonly Outcome[]): string[] {
  const trained = [...reportsOf(outcomes).values()].flatMap(({ peer, step }) =>
    step ? [{ peer, losses: step.losses.slice(0, 3) }] : [],
  );
  const expected = trained[0]?.losses ?? [];
  const isNear = (loss: number, index: number): boolean =>
    Math.abs(loss - (expected[index] ?? loss)) < 1e-3 * loss;
  return trained.filter(({ losses }) => !losses.every(isNear)).map(({ peer }) => peer);
}

function reportsOf(outcomes: readonly Outcome[]): Reports {
  return new Map(
    outcomes.flatMap((outcome) => ("report" in outcome ? [[outcome.name, outcome.report]] : [])),
  );
}

function ratio(over: number | undefined, under: number | undefined): number | undefined {
  return over === undefined || under === undefined ? undefined : over / under;
}
