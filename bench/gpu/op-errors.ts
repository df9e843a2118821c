/**
 * A share of the op cases on the GPU, in its own process: most of the time is compilation, which uses many
 * cores. Each case runs in every dtype and is compared with the same op on the same numbers in f64 on the
 * CPU. Prints a line of JSON for each case.
 */

import fc from "fast-check";
import { Device } from "holdfast";
import { readOptions } from "../../test/support/command-line.js";
import { deviceOpCases } from "../../test/support/op-cases/index.js";
import { type CaseCall, type CaseOperand, nameOf, type OpCase } from "../../test/support/op-cases/op-case.js";
import { type CaseRun, describeCall, runCase, uploadOperand } from "../../test/support/op-runs.js";
import { type FloatDtype, tolerances } from "../../test/tolerances.js";
import { type CountedDriver, countCalls } from "./counted-driver.js";
import {
  type Deviation,
  deviationOf,
  type ErrorColumn,
  errorColumns,
  noDeviation,
  type OpErrorLine,
  scaleOf,
  worseOf,
} from "./deviation.js";
import { commonOptions, count, type Gpu, openGpu } from "./options.js";

/** TF32 has as many digits as f16. */
const allowedFor = (column: ErrorColumn) => tolerances["against f64"][column === "tf32" ? "f16" : column];

const options = readOptions(import.meta.url, {
  ...commonOptions,
  /** "2/8": the third of eight shares. */
  share: { type: "string", default: "0/1" },
  draws: { type: "string", default: "8" },
  elements: { type: "string", default: "120" },
  seconds: { type: "string", default: "180" },
  only: { type: "string", default: "" },
});
const seed = 20_240_611;

/** Only cases whose names contain one of these words; all cases if empty. */
function chosenCases(only: string): readonly OpCase[] {
  const words = only === "" ? [] : only.split(",");
  return deviceOpCases.filter(
    (opCase) => words.length === 0 || words.some((word) => nameOf(opCase).includes(word)),
  );
}

const quiet = { stallAfter: "off", print: () => {} } as const;
const cpu = new Device("cpu", { threads: 1, ...quiet });

/** An operand's numbers, rounded to the dtype. */
function round(operand: CaseOperand, float: FloatDtype): CaseOperand {
  if (typeof operand !== "object" || operand.dtype !== "float" || float === "f64") return operand;
  return { ...operand, values: [...uploadOperand(cpu, operand, float).tensor.dataSync()] };
}

function compare(actual: CaseRun, exact: CaseRun, column: ErrorColumn, text: string): Deviation {
  let worst = noDeviation;
  for (const what of ["outputs", "gradients"] as const) {
    for (const [index, expected] of exact[what].entries()) {
      if (!expected) continue;
      const label = `${text}: ${what === "outputs" ? "output" : "gradient"} ${index}`;
      const values = actual[what][index] ?? [];
      worst = worseOf(worst, deviationOf(values, expected, allowedFor(column), scaleOf(expected), label));
    }
  }
  return worst;
}

interface Bench {
  readonly gpu: Gpu;
  readonly calls: CountedDriver;
}

function openBench(precision: "f32" | "tf32"): Bench {
  const counted: { calls?: CountedDriver } = {};
  const gpu = openGpu(options, {
    device: { precision, memory: "1GiB", staging: "4MiB", ...quiet },
    wrap: (driver) => {
      counted.calls = countCalls(driver);
      return counted.calls.driver;
    },
  });
  return { gpu, calls: counted.calls! };
}

function check(bench: Bench, opCase: OpCase, call: CaseCall, column: ErrorColumn): Deviation {
  const float = column === "tf32" ? "f32" : column;
  const operands = opCase.gradients === "none" ? [] : opCase.gradients;
  const { rounded, exact } = cpu.step(() => {
    const inputs = { ...call, operands: call.operands.map((operand) => round(operand, float)) };
    return { rounded: inputs, exact: runCase(cpu, opCase.op, inputs, { float: "f64", wanted: operands }) };
  });
  const { device } = bench.gpu;
  const actual = device.step(() => runCase(device, opCase.op, rounded, { float, wanted: operands }));
  return compare(actual, exact, column, describeCall(opCase.op, call));
}

/** An exception counts as infinitely far off. */
function tryCheck(bench: Bench, opCase: OpCase, call: CaseCall, column: ErrorColumn): Deviation {
  try {
    return check(bench, opCase, call, column);
  } catch (error) {
    const [message] = (error as Error).message.split("\n");
    const what = `${describeCall(opCase.op, call)} in ${column}: ${message}`;
    return { share: Infinity, error: Infinity, what };
  }
}

const [shareIndex, shares] = options.share.split("/").map(Number) as [number, number];
const [draws, elements] = [count("draws", options.draws), count("elements", options.elements)];
const deadline = performance.now() + 1000 * count("seconds", options.seconds);
const cases = chosenCases(options.only)
  .filter((_, index) => index % shares === shareIndex)
  .map((opCase) => ({ one: opCase, calls: fc.sample(opCase.draw(elements), { seed, numRuns: draws }) }));
const [plain, rounded] = [openBench("f32"), openBench("tf32")];

/** Round by round, so that every case has had one when the time is over. */
for (let draw = 0; draw < draws; draw++) {
  for (const { one: opCase, calls } of cases) {
    if (performance.now() > deadline) break;
    let hasGemm = false;
    for (const column of errorColumns) {
      // Only GEMMs use TF32.
      if (column === "tf32" && !hasGemm) continue;
      const before = plain.calls.counts.gemms;
      const bench = column === "tf32" ? rounded : plain;
      const { share, error, what } = tryCheck(bench, opCase, calls[draw]!, column);
      hasGemm ||= plain.calls.counts.gemms > before;
      const line: OpErrorLine = { name: nameOf(opCase), column, share: String(share), error, what };
      console.log(JSON.stringify(line));
    }
  }
}
for (const { gpu } of [plain, rounded]) gpu.close();
cpu.close();
