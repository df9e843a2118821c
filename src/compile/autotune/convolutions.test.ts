/** Autotuning of convolutions: the fastest tile is selected with its scratch memory, measured once, on separate memory. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { storageWithoutMemory } from "../../../test/support/null-gpu.js";
import { bufferOf } from "../../../test/support/row-calls.js";
import { openPrintingDriver } from "../../../test/support/source-recording-driver.js";
import { testEnvironment } from "../../../test/support/test-device.js";
import { timed } from "../../../test/support/timed-driver.js";
import { interceptCalls } from "../../driver/index.js";
import { HoldfastError } from "../../errors/index.js";
import { backendOf, type ConvolutionShape } from "../../kernels/index.js";
import { openRuntime, type Runtime } from "../../runtime/index.js";
import type { FakeClock } from "../../units/index.js";
import { listSources } from "../execute/emit.js";
import type { ConvolutionCall } from "../program/kinds/convolution.js";
import { type Call, Program } from "../program/program.js";
import { autotuneConvolutions, convolutionAlgorithmsIn } from "./convolutions.js";
import type { KnownChoices } from "./tune-calls.js";

interface Bench {
  readonly runtime: Runtime;
  readonly clock: FakeClock;
  readonly known: KnownChoices;
  /** The driver's notes, which outlive a process. */
  readonly notes: Map<string, string>;
  /** The code of each launch, also of recorded ones. */
  readonly launches: readonly string[];
  /** The algorithms of the calls after tuning. */
  tune(calls: readonly Call[], known?: KnownChoices, keepsBits?: boolean): readonly ConvolutionCall[];
}

/** Runs `use` on a Hopper GPU that computes nothing, where a launch takes `costMs` milliseconds. */
function onDevice(
  costMs: (code: string, runtime: Runtime) => number,
  use: (bench: Bench) => void,
  multiprocessors = 132,
): void {
  const printing = openPrintingDriver({ parallelism: multiprocessors });
  const launches: string[] = [];
  const { driver, clock } = timed(printing.driver, ({ cuda }) => {
    launches.push(cuda?.code ?? "");
    return costMs(cuda?.code ?? "", runtime);
  });
  const notes = new Map<string, string>();
  const noting = Object.assign(
    interceptCalls(driver, (_call, _args, proceed) => proceed()),
    {
      recall: (key: string) => notes.get(key),
      remember: (key: string, note: string) => void notes.set(key, note),
    },
  );
  const runtime = openRuntime({
    ...{ driver: noting, memory: "64MiB", stallAfter: "off", environment: testEnvironment },
    print: () => {},
  });
  try {
    const ownKnown: KnownChoices = new Map();
    const tune: Bench["tune"] = (calls, known = ownKnown, keepsBits = false) => {
      const program = new Program(calls);
      autotuneConvolutions(runtime, program, { known, clock, keepsBits });
      return program.calls.map(workOf);
    };
    use({ runtime, clock, known: ownKnown, notes, launches, tune });
  } finally {
    runtime.close();
    driver.close();
  }
}

const [batch, channels, side] = [4, 32, 8];

function convolution(more: Partial<ConvolutionShape> = {}, scratchBytes = 0): Call {
  const shape: ConvolutionShape = {
    ...{ direction: "forward", dtype: "f32", channelsLast: { operands: "bf16" }, batch, groups: 1 },
    ...{ channels, outChannels: channels, size: [side, side], outSize: [side, side], kernel: [3, 3] },
    ...{ stride: [1, 1], padding: [1, 1], dilation: [1, 1] },
    ...more,
  };
  const { operands: read = "bf16" } = shape.channelsLast ?? {};
  const [weightDtype, resultDtype] =
    shape.direction === "weight-gradient" ? (["f32", read] as const) : ([read, "f32"] as const);
  const imageElements = shape.batch * side * side * channels;
  const operands = {
    x: bufferOf([imageElements], { dtype: read, label: "x" }).slice,
    weight: bufferOf([channels * channels * 9], { dtype: weightDtype, label: "weight" }).slice,
    y: bufferOf([imageElements], { dtype: resultDtype, label: "y" }).slice,
    ...(scratchBytes > 0 && { scratch: bufferOf([scratchBytes / 4], { label: "scratch" }).slice }),
  };
  return { op: "convolution", work: { kind: "convolution", shape, operands } };
}

function workOf({ work }: Call): ConvolutionCall {
  if (work.kind !== "convolution") throw new Error(`"${work.kind}" is no convolution`);
  return work;
}

const algorithmsOf = (works: readonly ConvolutionCall[]): number[] =>
  works.map(({ shape }) => shape.algorithm ?? 0);

function scratchBytesOf(runtime: Runtime, call: Call, algorithm: number): number {
  return backendOf(runtime).convolutionScratchBytes({ ...workOf(call).shape, algorithm });
}

/** The code of a candidate; of a weight gradient, without the sum of its partials. */
function codeOf(runtime: Runtime, call: Call, algorithm: number): string {
  const { shape, operands, ...work } = workOf(call);
  const size = scratchBytesOf(runtime, call, algorithm);
  const scratch = size > 0 && { scratch: bufferOf([size / 4]).slice };
  const tuned = { ...work, shape: { ...shape, algorithm }, operands: { ...operands, ...scratch } };
  const [source] = listSources(runtime, [{ ...call, work: tuned }], storageWithoutMemory);
  return source?.cuda?.code ?? "";
}

/** Runs `use` on a device where one candidate takes a third of the others' time. */
function withFastest(fastest: number, use: (bench: Bench) => void): void {
  let code: string | undefined;
  onDevice((launched, runtime) => {
    code ??= codeOf(runtime, convolution(), fastest);
    return launched === code ? 0.1 : 0.3;
  }, use);
}

test("the fastest candidate is selected, and its call changes in nothing else", () => {
  for (const algorithm of [1, 4]) {
    withFastest(algorithm, ({ tune }) => {
      const call = convolution();
      const { shape, ...rest } = workOf(call);
      assert.deepEqual(tune([call]), [{ ...rest, shape: { ...shape, algorithm } }]);
    });
  }
});

test("if no bit may change, only exact convolutions are tuned: their candidates have the same splits", () => {
  const exact = { channelsLast: { operands: "f32", isExact: true }, batch: 64 } as const;
  const calls = [convolution(exact), convolution()];
  onDevice(
    (code, runtime) => (calls.some((call) => code === codeOf(runtime, call, 0)) ? 0.3 : 0.1),
    ({ runtime, tune }) => {
      assert.deepEqual(algorithmsOf(tune(calls, new Map(), true)), [1, 0]);
      assert.deepEqual(algorithmsOf(tune(calls)), [1, 1]);
      const gradient = convolution({ ...exact, direction: "weight-gradient" });
      const sizes = [0, 1, 2, 3].map((algorithm) => scratchBytesOf(runtime, gradient, algorithm));
      assert.equal(new Set(sizes).size, 1);
    },
  );
});

test("the runs of depthwise images are measured even if no bit may change, and a weight gradient has one candidate", () => {
  const { channelsLast: _, ...shape } = workOf(convolution()).shape;
  const depthwise = (more: Partial<ConvolutionShape>): Call => {
    const { work, ...rest } = convolution();
    const sizes = { groups: channels, channels: 1, outChannels: 1, depthwise: { isChannelsLast: true } };
    const { operands } = workOf({ work, ...rest });
    const f32 = {
      x: bufferOf([batch * side * side * channels], { label: "x" }).slice,
      weight: bufferOf([channels * 9], { label: "weight" }).slice,
    };
    return {
      ...rest,
      work: {
        kind: "convolution",
        shape: { ...shape, ...sizes, ...more },
        operands: { ...operands, ...f32 },
      },
    };
  };
  const image = depthwise({});
  onDevice(
    (code, runtime) => (code === codeOf(runtime, image, 1) ? 0.1 : 0.3),
    ({ runtime, tune }) => {
      assert.deepEqual(algorithmsOf(tune([image], new Map(), true)), [1]);
      const gradient = workOf(depthwise({ direction: "weight-gradient" }));
      assert.equal(backendOf(runtime).convolutionCandidates(gradient.shape), 1);
    },
  );
});

test("of candidates that take about as long, the first is selected", () => {
  onDevice(
    () => 0.2,
    ({ tune }) => assert.deepEqual(algorithmsOf(tune([convolution()])), [0]),
  );
});

test("equal convolutions are measured once, and a later step and a later process measure nothing", () => {
  withFastest(2, ({ notes, launches, tune }) => {
    assert.deepEqual(algorithmsOf(tune([convolution(), convolution()])), [2, 2]);
    assert.match([...notes.values()].join(), /^2 \d+(\.\d+)?$/, "the candidate and its microseconds");
    const count = launches.length;
    assert.deepEqual(algorithmsOf(tune([convolution()])), [2]);
    assert.deepEqual(algorithmsOf(tune([convolution()], new Map())), [2]);
    assert.equal(launches.length, count);
  });
});

test("an invalid note is measured again", () => {
  withFastest(2, ({ notes, tune }) => {
    tune([convolution()]);
    const [key = ""] = notes.keys();
    for (const note of ["6 100", "-1 100", "1.5 100", "1", "1 -100", "a tile"]) {
      notes.set(key, note);
      assert.deepEqual(algorithmsOf(tune([convolution()], new Map())), [2], note);
      assert.match(notes.get(key) ?? "", /^2 /);
    }
  });
});

test("a selected weight gradient has scratch memory of the size that its splits need", () => {
  const shape = { direction: "weight-gradient", batch: 64 } as const;
  onDevice(
    // The sum of the partials is another kernel, the same for all candidates.
    (code, runtime) => (code === codeOf(runtime, convolution(shape), 0) ? 0.3 : 0.1),
    ({ runtime, tune }) => {
      const call = convolution(shape, scratchBytesOf(runtime, convolution(shape), 0));
      const [tuned] = tune([call]);
      const [algorithm = 0] = algorithmsOf(tuned ? [tuned] : []);
      assert.ok(algorithm > 0);
      const scratch = tuned?.operands.scratch;
      const [size, before] = [algorithm, 0].map((one) => scratchBytesOf(runtime, call, one));
      assert.notEqual(size, before, "the test needs candidates with other splits");
      assert.equal(scratch?.size, size);
      assert.notEqual(scratch?.buffer, workOf(call).operands.scratch?.buffer);
    },
    // So few that the K of a large batch is not split completely.
    8,
  );
});

test("trials leave no memory behind", () => {
  onDevice(
    () => 0.2,
    ({ runtime, tune }) => {
      const before = runtime.arena.figures.live;
      tune([convolution()]);
      assert.equal(runtime.arena.figures.live, before);
    },
  );
});

test("a candidate that cannot be launched is left out", () => {
  onDevice(
    (code, runtime) => {
      if (code === codeOf(runtime, convolution(), 0)) throw new HoldfastError("DRIVER_FAILED", "too large");
      return 0.2;
    },
    ({ tune }) => assert.deepEqual(algorithmsOf(tune([convolution()])), [1]),
  );
});

test("slow candidates end a measurement, and those that were tried count", () => {
  onDevice(
    () => 60,
    ({ clock, launches, tune }) => {
      const startMs = clock.nowMs();
      assert.deepEqual(algorithmsOf(tune([convolution()])), [0]);
      // Two runs of the first candidate take more than half of the limit.
      assert.equal(new Set(launches).size, 1);
      assert.ok(clock.nowMs() - startMs < 400);
    },
  );
});

test("convolutions for which no time is left keep the estimate's choice, and are measured in the next step", () => {
  onDevice(
    () => 400,
    ({ known, tune }) => {
      const calls = [1, 2, 3, 4, 5, 6].map((count) =>
        convolution({ stride: [count, 1], outSize: [1, side] }),
      );
      assert.deepEqual(algorithmsOf(tune(calls)), [0, 0, 0, 0, 0, 0]);
      const measured = known.size;
      assert.ok(measured > 0 && measured < calls.length, `${measured} of ${calls.length}`);
      tune(calls);
      assert.ok(known.size > measured);
    },
  );
});

test("without memory for trials nothing is selected, noted or thrown", () => {
  onDevice(
    () => 0.2,
    ({ known, notes, launches, tune }) => {
      const work = workOf(convolution());
      const x = bufferOf([2 ** 28], { label: "x" }).slice;
      const large: Call = { op: "convolution", work: { ...work, operands: { ...work.operands, x } } };
      assert.deepEqual(algorithmsOf(tune([large])), [0]);
      assert.deepEqual([known.size, notes.size, launches.length], [0, 0, 0]);
    },
  );
});

test("convolutions of other layouts are not measured", () => {
  onDevice(
    () => 0.2,
    ({ launches, tune }) => {
      const work = workOf(convolution());
      const { channelsLast: _, ...shape } = work.shape;
      assert.deepEqual(tune([{ op: "convolution", work: { ...work, shape } }]), [{ ...work, shape }]);
      assert.equal(launches.length, 0);
    },
  );
});

test("another program takes over the algorithms of a program", () => {
  withFastest(3, ({ runtime, launches, notes, tune }) => {
    const calls = tune([convolution()]).map((work): Call => ({ op: "convolution", work }));
    const count = launches.length;
    notes.clear();
    const known = convolutionAlgorithmsIn(runtime, calls);
    assert.deepEqual(algorithmsOf(tune([convolution()], known)), [3]);
    assert.equal(launches.length, count);
  });
});
