/** Programmatic dependent launch: which launches may use it, what they prefetch, and which launches are emitted with it. */

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { emulatorMissing } from "../../../test/support/emulator.js";
import { openEmulatorGpu } from "../../../test/support/emulator-gpu.js";
import type { ProposedStep } from "../../../test/support/proposed-steps.js";
import { sideBySideCalls, straightStep, streamedStep } from "../../../test/support/training-step.js";
import type { Kernel } from "../../driver/index.js";
import { iterateElements, type RowKernel, term } from "../../ir/index.js";
import type { Runtime } from "../../runtime/index.js";
import { emitCommands } from "../execute/emit.js";
import type { Buffer, BufferSlice, Call, Plan, Schedule, ScheduledCall } from "../program/program.js";
import type { AddressSpace } from "../verify/address-space.js";
import { requirePdl } from "../verify/pdl.js";
import { proposalOf } from "../verify/proposal.js";
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

test("a kernel that reads before it waits uses PDL only after a launch that writes nothing of that", () => {
  const [cache, query, out] = ["cache", "query", "out"].map((label, id) => ({
    ...{ buffer: { id, bytes: 64, label }, offset: 0, size: 64 },
  })) as [BufferSlice, BufferSlice, BufferSlice];
  const launch = (op: string, early: readonly number[], values: readonly BufferSlice[]): Call => {
    const parameters = ["in", "out"] as const;
    const kernel: Kernel = { type: "kernel", id: 0, name: op, parameters, early };
    return { op, work: { kind: "launch", kernel, blocks: 1, arguments: values } };
  };
  const marks = (written: BufferSlice, early: readonly number[]) => {
    const calls = [launch("project", [], [out, written]), launch("attend", early, [cache, out])];
    const schedule = { calls: calls.map((call) => ({ call, stream: 0, after: [] })), streams: 1 };
    return markPdl(deviceThat(true), schedule as unknown as Schedule).calls[1]?.prefetches;
  };
  assert.deepEqual(marks(query, [0]), [cache]);
  assert.equal(marks(cache, [0]), undefined);
  assert.deepEqual(marks(cache, []), []);

  const program = [launch("project", [], [query, out]), launch("attend", [0], [cache, out])];
  const requireMark = (prefetches: readonly BufferSlice[]): void => {
    const calls = program.map((call) => ({ call, stream: 0, after: [], prefetches }));
    const schedule = { calls: [{ ...calls[0], prefetches: undefined }, calls[1]], streams: 1 };
    const proposal = proposalOf(program, schedule as unknown as Schedule, {} as Plan, undefined);
    requirePdl(proposal, {
      rangeOf: ({ buffer }: BufferSlice) => ({ start: 64 * buffer.id, end: 64 * buffer.id + 64 }),
    } as AddressSpace);
  };
  requireMark([cache]);
  assert.throws(() => requireMark([]), { code: "PLAN_REJECTED", message: /reads .*cache.* before it waits/ });
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
      const emitted = emitCommands(runtime, calls, ({ buffer }) => memory.get(buffer)!, { schedule });
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
