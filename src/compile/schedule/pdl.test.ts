/** Programmatic dependent launch: which launches may use it, what they prefetch, and which launches are emitted with it. */

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { emulatorMissing } from "../../../test/support/emulator.js";
import { openEmulatorGpu } from "../../../test/support/emulator-gpu.js";
import type { ProposedStep } from "../../../test/support/proposed-steps.js";
import { sideBySideCalls, straightStep, streamedStep } from "../../../test/support/training-step.js";
import { iterateElements, type RowKernel, term } from "../../ir/index.js";
import type { Runtime } from "../../runtime/index.js";
import { emitCommands } from "../execute/emit.js";
import type { Buffer, Call, ScheduledCall } from "../program/program.js";
import { markPdl } from "./pdl.js";

const deviceThat = (supportsPdl: boolean): Runtime => ({ device: { supportsPdl } }) as Runtime;

function marksOf({ schedule }: ProposedStep, supportsPdl = true): Record<string, readonly string[]> {
  const { calls } = markPdl(deviceThat(supportsPdl), schedule);
  return Object.fromEntries(
    calls.flatMap(({ call, prefetches }) =>
      prefetches ? [[call.op, prefetches.map(({ buffer }) => buffer.label)]] : [],
    ),
  );
}

test("a launch after a launch may use PDL, but not the first call, a call that waits for another stream, or a call next to a fill or copy", () => {
  const serialized = (step: ProposedStep): string[] => {
    const marks = marksOf(step);
    return step.program.map(({ op }) => op).filter((op) => !(op in marks));
  };
  assert.deepEqual(serialized(straightStep()), [
    ...["clearGradients", "matmul1", "keepLoss", "clampErrors", "keepErrors", "errorBackward"],
    ...["clearNorm", "sumSquares"],
  ]);
  const { schedule } = streamedStep();
  const waits = ({ after }: ScheduledCall): boolean => after.length > 0;
  const waiting = schedule.calls.filter(waits).map(({ call }) => call.op);
  assert.ok(waiting.includes("weightGradient2"));
  for (const op of waiting) assert.ok(serialized(streamedStep()).includes(op), op);
  assert.deepEqual(marksOf(straightStep(), false), {});
});

test("row kernels prefetch operands that the preceding call does not write", () => {
  const marks = marksOf(sideBySideCalls(straightStep(), "weightGradient2", "matmulBackward"));
  assert.deepEqual(marks["weightGradient2 + matmulBackward"], ["a", "w2"]);
  assert.deepEqual(marks["gelu"], [], "other kernels prefetch nothing");
});

describe("emitted launches", { skip: emulatorMissing }, () => {
  const { runtime } = emulatorMissing ? undefined! : openEmulatorGpu();
  const kernel: RowKernel = {
    ...{ name: "copy", inputs: ["f32"], outputs: [{ dtype: "f32", per: "element" }], scalars: [] },
    stages: [{ kind: "store", output: 0, value: term.load(0, "f32") }],
  };
  const [from, to] = ["from", "to"].map((label, id): Buffer => ({ id, bytes: 64, label })) as [
    Buffer,
    Buffer,
  ];
  const whole = (buffer: Buffer) => ({ buffer, offset: 0, size: 64 });
  const rows = (count: number): Call => ({
    op: "copy",
    work: {
      ...{ kind: "row", kernel, iteration: iterateElements([count], [[1], [1]]), scalars: [] },
      operands: [whole(from), whole(to)],
    },
  });
  const clear: Call = { op: "fill", work: { kind: "fill", target: whole(to), byte: 0 } };

  /** By emitted command: whether it uses PDL, if all calls may. */
  const emittedAsPdl = (calls: readonly Call[], streams: readonly number[] = []): (boolean | undefined)[] =>
    runtime.step(() => {
      const memory = new Map([from, to].map((buffer) => [buffer, runtime.arena.allocate(64, buffer.label)]));
      const schedule = calls.map((_, index) => ({ stream: streams[index] ?? 0, prefetches: [] }));
      const emitted = emitCommands(runtime, calls, ({ buffer }) => memory.get(buffer)!, schedule);
      return emitted.map(({ command }) => (command.kind === "launch" ? command.request.isPdl : false));
    });

  test("use PDL if the last command of the preceding call on their stream is a launch", () => {
    assert.deepEqual(emittedAsPdl([rows(4), rows(4), rows(4)]), [undefined, true, true]);
    assert.deepEqual(
      emittedAsPdl([rows(4), rows(0), rows(4)]),
      [undefined, undefined],
      "a call without rows emits nothing",
    );
    assert.deepEqual(emittedAsPdl([rows(4), clear, rows(4)]), [undefined, false, undefined]);
    assert.deepEqual(emittedAsPdl([rows(4), rows(4), rows(4)], [0, 1, 0]), [undefined, undefined, true]);
  });
});
