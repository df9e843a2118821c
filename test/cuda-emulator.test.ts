/**
 * A part of the device suites on CUDA, where no GPU is: the emulator runs the CUDA driver and every kernel on the CPU. All
 * of them run so with TEST_DEVICE=emulator, and on a GPU with TEST_DEVICE=cuda; these few run with every `npm test`.
 */

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { pathToFileURL } from "node:url";
import fc from "fast-check";
import { Device, manualSeed, nn } from "holdfast";
import { type Driver, type KernelSource, strict } from "holdfast/internals";
import { contiguous, linearAlgebra, mul, type Op, opTable } from "../src/ops/index.js";
import { effort } from "./support/effort.js";
import { compileTogether, emulatorMissing } from "./support/emulator.js";
import { cudaMissing } from "./support/kernel-runtime.js";
import { elementwiseCases } from "./support/op-cases/elementwise.js";
import { deviceOpCases } from "./support/op-cases/index.js";
import type { CaseCall, OpCase } from "./support/op-cases/op-case.js";
import { sampleCases } from "./support/op-cases/sample.js";
import { specialFunctionCases } from "./support/op-cases/special-functions.js";
import { type CaseRun, describeCall, runCase, runInOneStep } from "./support/op-runs.js";
import { repositoryRoot } from "./support/repository.js";
import { sameBytes } from "./support/same-bytes.js";
import { shortRunFlags } from "./support/short-process.js";
import { openPrintingDriver } from "./support/source-recording-driver.js";
import { openTestCpu, openTestGpu, testDevice, testEnvironment } from "./support/test-device.js";
import { isNear, tolerances } from "./tolerances.js";

const seed = 20_240_611;

const drawn = new Map<OpCase["draw"], CaseCall>();

/** A draw of middle size, of which every operand has elements. */
function drawCall({ draw }: OpCase): CaseCall {
  const known = drawn.get(draw);
  if (known) return known;
  const calls = fc.sample(fc.noBias(draw(40)), { seed, numRuns: 16 });
  const isFull = ({ operands }: CaseCall): boolean =>
    operands.every((operand) => typeof operand !== "object" || operand.values.length > 0);
  const call = calls.find(isFull) ?? calls[0]!;
  drawn.set(draw, call);
  return call;
}

const comparedCases = effort({ quick: sampleCases(deviceOpCases), thorough: deviceOpCases });

type Results = Pick<CaseRun, "outputs" | "outputTypes" | "gradients">;

interface Comparison {
  readonly one: OpCase;
  readonly call: CaseCall;
  readonly expected: Results;
  readonly found: Results;
}

function open(kind: "cpu" | "cuda", driver: Driver): Device {
  const quiet = { stallAfter: "off", environment: testEnvironment, print: () => {} } as const;
  // Capture is off: to capture a step, the autotuner would run all of its candidates.
  const device = new Device(kind, {
    driver: strict(driver),
    memory: "256MiB",
    poison: true,
    capture: "off",
    ...quiet,
  });
  after(() => {
    device.close();
    driver.close();
  });
  return device;
}

describe("on CUDA", { skip: cudaMissing }, () => {
  const gpuDriver = openTestGpu();
  const [cpu, gpu] = [open("cpu", openTestCpu()), open("cuda", gpuDriver)];

  function runAlone(device: Device, { op, gradients }: OpCase, call: CaseCall): Results {
    const options = { float: "f32", wanted: gradients === "none" ? [] : gradients } as const;
    return device.step(() => runCase(device, op, call, options));
  }

  /** Runs cases on both devices: on CUDA in one compiled step, or each by itself. */
  function runCases(cases: readonly OpCase[], mode: "together" | "alone"): Comparison[] {
    const known = cases.map((one) => {
      const call = drawCall(one);
      return { one, call, expected: runAlone(cpu, one, call) };
    });
    if (mode === "alone")
      return known.map((item) => ({ ...item, found: runAlone(gpu, item.one, item.call) }));
    const calls = known.map(({ one: { op, gradients }, call, expected: { outputTypes } }) => {
      return { op, call, wanted: gradients === "none" ? [] : gradients, outputTypes };
    });
    const found = runInOneStep(gpu, calls, "f32");
    return known.map((item, index) => ({ ...item, found: found[index]! }));
  }

  /** The kernels of cases, each by itself, which the emulator then compiles together. */
  function kernelsOf(cases: readonly OpCase[]): Iterable<KernelSource> {
    const { parallelism, computeCapability = "", supportsPdl = false } = gpuDriver.describe();
    const { driver, sources } = openPrintingDriver({ parallelism, computeCapability, supportsPdl });
    const device = open("cuda", driver);
    for (const one of cases) runAlone(device, one, drawCall(one));
    return sources.values();
  }

  /**
   * In a quick run, elementwise ops are in one compiled step: they are half of the kernels, and each kernel
   * starts a compiler.
   */
  const isTogether = (one: OpCase): boolean =>
    effort({ quick: [...elementwiseCases, ...specialFunctionCases].includes(one), thorough: false });
  let comparisons: readonly Comparison[] = [];

  before(() => {
    if (testDevice !== "cuda") compileTogether(kernelsOf(comparedCases.filter((one) => !isTogether(one))));
    comparisons = [
      ...runCases(comparedCases.filter(isTogether), "together"),
      ...runCases(
        comparedCases.filter((one) => !isTogether(one)),
        "alone",
      ),
    ];
  });

  for (const [name, op] of Object.entries(opTable)) {
    if (name in linearAlgebra) continue;
    test(`${name} is in f32 what it is on the CPU, forward and backward`, () => {
      const ofOp = comparisons.filter(({ one }) => one.op === op);
      assert.ok(ofOp.length > 0, "the op has no case");
      for (const comparison of ofOp) compare(comparison);
    });
  }

  function compare({ one: { op }, call, expected, found }: Comparison): void {
    const told = describeCall(op, call);
    assert.deepEqual(found.outputTypes, expected.outputTypes, told);
    const [wantedArrays, ownArrays] = [expected, found].map(({ outputs, gradients }) => [
      ...outputs,
      ...gradients,
    ]);
    for (const [index, wanted] of wantedArrays!.entries()) {
      const own = ownArrays![index];
      assert.equal(own?.length, wanted?.length, `${told}: the length of array ${index}`);
      const scale = Math.max(1, ...Array.from(wanted ?? [], Math.abs).filter(Number.isFinite));
      for (const [at, value] of (wanted ?? []).entries()) {
        if (isNear(own![at]!, value, tolerances["against f64"].f32, scale)) continue;
        assert.fail(`${told}: array ${index} at element ${at} is ${own![at]}; the CPU has ${value}`);
      }
    }
  }

  for (const mode of ["alone", "together"] as const) {
    test(`red proof: a result that is a ten-thousandth off on one of the devices is found, ${mode}`, () => {
      let calls = 0;
      const wrong: Op = {
        kind: "composite",
        name: "wrong at the second call",
        infer: (operands, attributes) => contiguous.infer(operands, attributes),
        compose: ({ apply }, [x = 0]) => [apply(mul, [x, calls++ === 0 ? 1 : 1.0001])],
      };
      const [one] = deviceOpCases.filter(({ op }) => op === contiguous);
      const [comparison] = runCases([{ ...one!, op: wrong }], mode);
      assert.throws(() => compare(comparison!), assert.AssertionError);
    });
  }

  test("one seed drops the same elements as on the CPU, draw for draw", () => {
    const drawOn = (device: Device): Uint8Array[] =>
      device.step(() => {
        manualSeed(99);
        const x = device.fromHost(new Float32Array(4999).fill(1), [4999], "f32");
        return Array.from({ length: 3 }, () =>
          Uint8Array.from(nn.functional.dropout(x, 0.3).ne(0).dataSync()),
        );
      });
    const expected = drawOn(cpu);
    for (const [index, mask] of drawOn(gpu).entries()) sameBytes(mask, expected[index]!, `draw ${index}`);
  });
});

/**
 * Files of the device suites, each with the start of a test name that the output must have: CrossAsset's trajectories
 * against PyTorch, captures, resets before every backward (row C1), and a captured training step (row C11).
 */
const suites: Readonly<Record<string, string>> = {
  "test/oracle-crossasset": "t0 in f32",
  "src/runtime/capture/capture": "a capture for timing",
  "test/regressions/corruption-gradients": "C1: ",
  "test/regressions/corruption-frozen-step": "C11: ",
};

/** A quick run leaves out red proofs, which run on the CPU, and all but one trajectory in each dtype. Patterns also match the name of the root. */
const chosenTests = effort({
  quick: ["/t0 in f32|t1 in f64/", "/^(?!.*(<root>|t\\d in |red proof))/"],
  thorough: [],
});

const skip = testDevice === "cpu" ? emulatorMissing : "these files run by themselves here";
const fileNames = Object.keys(suites).map((file) => `${file}.test.ts`);

test(`${fileNames.join(", ")} hold on the emulator too`, { skip }, async () => {
  const imports = Object.keys(suites).map((file) => {
    const path = join(repositoryRoot, "dist", `${file}.test.js`);
    return `await import(${JSON.stringify(pathToFileURL(path).href)});`;
  });
  const choice = chosenTests.map((pattern) => `--test-name-pattern=${pattern}`);
  const child = spawn(
    process.execPath,
    [...shortRunFlags, ...choice, "--input-type=module", "--eval", imports.join("\n")],
    {
      env: { ...process.env, TEST_DEVICE: "emulator", EMULATOR_GPU: "early=1" },
      stdio: ["ignore", "pipe", "pipe"],
    },
  );
  let printed = "";
  for (const stream of [child.stdout, child.stderr]) {
    stream.setEncoding("utf8").on("data", (chunk: string) => {
      printed += chunk;
    });
  }
  const exitCode = await new Promise((resolve) => child.on("close", resolve));
  assert.equal(exitCode, 0, printed);
  assert.match(printed, /pass [1-9]/, "tests have run");
  for (const name of Object.values(suites)) assert.ok(printed.includes(name), `"${name}" has not run`);
});
