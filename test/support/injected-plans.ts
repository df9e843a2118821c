/** Faults injected into the schedule or the plan of a sound step, each with the rule that it breaks. */

import { accessesOf, type BufferSlice, type Call } from "../../src/compile/program/program.js";
import type { PlanRule } from "../../src/compile/verify/verify.js";
import { span } from "../../src/units/index.js";
import { copiedStep, copiedWeights, sliceOfElements, updateCall } from "./copied-step.js";
import { type ProposedStep, planDisjoint } from "./proposed-steps.js";
import {
  bufferOf,
  changeWaits,
  indexOf,
  moveBuffers,
  moveCall,
  offsetOf,
  rewrite,
  sideBySideCalls,
  straightStep,
  streamedStep,
} from "./training-step.js";

/** A step that was sound before a change. */
export interface PlanFault {
  readonly rule: PlanRule;
  readonly says: RegExp;
  /** True if the step would compute another result; for the others the effect is unknown. */
  readonly harms?: true;
  readonly injected: () => ProposedStep;
}

export const planFaults: Readonly<Record<string, PlanFault>> = {
  "a call left out": {
    rule: "calls",
    says: /call 4 \(bias\) is missing/,
    injected: () => {
      const step = straightStep();
      return { ...step, schedule: { calls: step.schedule.calls.filter(({ call }) => call.op !== "bias") } };
    },
  },
  "a call that is scheduled twice": {
    rule: "calls",
    says: /call 4 \(bias\) is in the schedule twice, at indices 4 and 20/,
    harms: true,
    injected: () => {
      const step = straightStep();
      const bias = step.schedule.calls[indexOf(step, "bias")]!;
      return { ...step, schedule: { calls: [...step.schedule.calls, bias] } };
    },
  },
  "a call at another call's index": {
    rule: "calls",
    says: /call 18 \(update1\) is missing/,
    injected: () => {
      const step = straightStep();
      const calls = [...step.schedule.calls];
      calls[indexOf(step, "update1")] = calls[indexOf(step, "bias")]!;
      return { ...step, schedule: { calls } };
    },
  },
  "a call that is not in the program": {
    rule: "calls",
    says: /index 20 of the schedule \(stranger\) is not in the program/,
    injected: () => {
      const step = straightStep();
      const foreign = { ...step.program[0]!, op: "stranger" };
      return {
        ...step,
        schedule: { calls: [...step.schedule.calls, { call: foreign, stream: 0, after: [] }] },
      };
    },
  },
  "a program that contains one call twice": {
    rule: "calls",
    says: /the program contains call 0 \(clearGradients\) again as call 20/,
    injected: () => {
      const step = straightStep();
      return { ...step, program: [...step.program, step.program[0]!] };
    },
  },

  "a wait for a later call": {
    rule: "streams",
    says: /call 10 \(errorBackward\).* waits for index 11, which is not an earlier call/,
    injected: () => changeWaits(streamedStep(), "errorBackward", (_, index) => [index + 1]),
  },
  "a wait of a call for itself": {
    rule: "streams",
    says: /call 11 \(weightGradient2\).* waits for index 11/,
    injected: () => changeWaits(streamedStep(), "weightGradient2", (after, index) => [...after, index]),
  },
  "a wait for an index that does not exist": {
    rule: "streams",
    says: /waits for index -1/,
    injected: () => changeWaits(streamedStep(), "weightGradient2", () => [-1]),
  },
  "a wait on the call's own stream": {
    rule: "streams",
    says: /call 2 \(gelu\).* waits for index 1, which is on the same stream/,
    injected: () => changeWaits(streamedStep(), "gelu", () => [1]),
  },
  "a stream that is not an integer": {
    rule: "streams",
    says: /call 4 \(bias\).* is on stream 0.5/,
    injected: () => onSideStream(streamedStep(), "bias", 0.5),
  },
  "a stream before the main one": {
    rule: "streams",
    says: /call 4 \(bias\).* is on stream -1/,
    injected: () => onSideStream(streamedStep(), "bias", -1),
  },
  "more streams than a device has": {
    rule: "streams",
    says: /at most 64 streams/,
    injected: () => {
      const { program, ...step } = straightStep();
      const copies = Array.from({ length: 80 }, () => ({ ...program[0]! }));
      const schedule = { calls: copies.map((call, stream) => ({ call, stream, after: [] })) };
      return { ...step, program: copies, schedule };
    },
  },
  "a stream that the main one never waits for": {
    rule: "streams",
    says: /no call of the main stream waits for call 9 \(keepErrors\).* the last of stream 2/,
    injected: () => changeWaits(streamedStep(), "update2", () => []),
  },
  "a step that ends on a side stream": {
    rule: "streams",
    says: /the last of stream 3/,
    injected: () => onSideStream(straightStep(), "update2", 3),
  },
  "a step without a main stream": {
    rule: "streams",
    says: /the last of stream 1/,
    injected: () => {
      const step = straightStep();
      return {
        ...step,
        schedule: { calls: step.schedule.calls.map((scheduled) => ({ ...scheduled, stream: 1 })) },
      };
    },
  },

  "a persistent buffer with an offset in the plan": {
    rule: "persistent",
    says: /gives buffer 2 \(w1\) the offset 0/,
    injected: () => {
      const step = straightStep();
      const w1 = step.program
        .flatMap(({ work }) => (work.kind === "launch" ? work.arguments : []))
        .flatMap((argument) => (typeof argument === "number" ? [] : [argument.buffer]))
        .find(({ label }) => label === "w1")!;
      return { ...step, plan: { ...step.plan, offsets: new Map([...step.plan.offsets, [w1, 0]]) } };
    },
  },
  "a block over persistent memory": {
    rule: "persistent",
    says: /overlaps buffer \d+ \(gradients\) at/,
    injected: () => ({ ...straightStep(), block: span(0x30500, 0x4000) }),
  },

  "a buffer without an offset": {
    rule: "bounds",
    says: /buffer \d+ \(norm\) has no offset/,
    injected: () => {
      const step = straightStep();
      const offsets = new Map(step.plan.offsets);
      offsets.delete(bufferOf(step.plan, "norm"));
      return { ...step, plan: { ...step.plan, offsets } };
    },
  },
  "a misaligned offset": {
    rule: "bounds",
    says: /buffer \d+ \(loss\) begins at \d+, which is not a multiple of 256/,
    injected: () => {
      const step = straightStep();
      return moveBuffers(step, { loss: offsetOf(step, "loss") + 64 });
    },
  },
  "an offset before the block": {
    rule: "bounds",
    says: /buffer \d+ \(h\) begins at -256/,
    injected: () => moveBuffers(straightStep(), { h: -256 }),
  },
  "an offset that is not a number": {
    rule: "bounds",
    says: /buffer \d+ \(h\) begins at NaN/,
    injected: () => moveBuffers(straightStep(), { h: Number.NaN }),
  },
  "a buffer beyond the peak": {
    rule: "bounds",
    says: /has bytes \[\d+, \d+\) of a plan of \d+/,
    injected: () => {
      const step = straightStep();
      return { ...step, plan: { ...step.plan, bytes: step.plan.bytes - 256 } };
    },
  },
  "a plan larger than its block": {
    rule: "bounds",
    says: /needs \d+ bytes and its block has 1024/,
    injected: () => ({ ...straightStep(), block: span(0x80000, 1024) }),
  },
  "a misaligned block": {
    rule: "bounds",
    says: /not a multiple of 256/,
    injected: () => ({ ...straightStep(), block: span(0x80040, 0x10000) }),
  },
  "a slice that ends after its buffer": {
    rule: "bounds",
    says: /call 15 \(clearNorm\) accesses bytes \[0, 128\) of buffer \d+ \(norm\), which has 64/,
    injected: () => withNormFilled(0, 128),
  },
  "a slice that begins before its buffer": {
    rule: "bounds",
    says: /call 15 \(clearNorm\) accesses bytes \[-64, 0\)/,
    injected: () => withNormFilled(-64, 64),
  },
  "a slice of no bytes": {
    rule: "bounds",
    says: /call 15 \(clearNorm\) accesses bytes \[0, 0\)/,
    injected: () => withNormFilled(0, 0),
  },
  "a persistent buffer larger than its memory": {
    rule: "bounds",
    says: /buffer \d+ \(kept loss\) has 128 bytes/,
    injected: () =>
      rewrite(straightStep(), (call) => {
        if (call.work.kind !== "copy" || call.op !== "keepLoss") return call;
        const { target } = call.work;
        return {
          ...call,
          work: { ...call.work, target: { ...target, buffer: { ...target.buffer, bytes: 128 } } },
        };
      }),
  },
  "two records of one buffer": {
    rule: "bounds",
    says: /buffer (\d+) \(loss\) and buffer \1 \(loss\) are two records/,
    injected: () => {
      const step = rewrite(straightStep(), (call) => {
        if (call.work.kind !== "copy" || call.op !== "keepLoss") return call;
        const { source } = call.work;
        return { ...call, work: { ...call.work, source: { ...source, buffer: { ...source.buffer } } } };
      });
      return { ...step, plan: planDisjoint(step.schedule) };
    },
  },

  "a peak that is too high": {
    rule: "peak",
    says: /it claims (\d+) bytes, and its buffers need/,
    injected: () => {
      const step = straightStep();
      return { ...step, plan: { ...step.plan, bytes: step.plan.bytes + 256 } };
    },
  },
  "a peak that is too low, inside the last unit": {
    rule: "peak",
    says: /it claims \d+ bytes, and its buffers need/,
    injected: () => {
      const step = straightStep();
      // The 64 bytes of the loss are at the highest offset: their end is not the end of their unit.
      const moved = moveBuffers(step, { loss: step.plan.bytes });
      return { ...moved, plan: { ...moved.plan, bytes: step.plan.bytes + 64 } };
    },
  },

  "a read before its write": {
    rule: "order",
    says: /call 2 \(gelu\), at index 1 .* reads .*\(h\); before it in the program call 1 \(matmul1\), at index 2 .* writes/,
    harms: true,
    injected: () => moveCall(straightStep(), "gelu", "matmul1"),
  },
  "an in-place write before a read of the old value": {
    rule: "order",
    says: /call 8 \(clampErrors\).* reads and writes .*\(e\); before it in the program call 6 \(mean\).* reads/,
    harms: true,
    injected: () => moveCall(straightStep(), "clampErrors", "mean"),
  },
  "two writes swapped": {
    rule: "order",
    says: /call 11 \(weightGradient2\).*before it in the program call 0 \(clearGradients\).* writes/,
    harms: true,
    injected: () => moveCall(straightStep(), "clearGradients", "clearNorm"),
  },
  "a write and a read of the same persistent bytes under two buffers swapped": {
    rule: "order",
    says: /call 18 \(update1\).* reads .*\(g1\); before it in the program call 17 \(clip\).*\(gradients\)/,
    harms: true,
    injected: () => moveCall(straightStep(), "clip", "update2"),
  },
  "a missing wait for step memory": {
    rule: "order",
    says: /call 6 \(mean\).* reads .*\(e\); before it in the program call 5 \(squaredError\)/,
    harms: true,
    injected: () => changeWaits(streamedStep(), "mean", () => []),
  },
  "a missing wait for persistent memory under another name": {
    rule: "order",
    says: /call 16 \(sumSquares\).*\(gradients\); before it in the program call 11 \(weightGradient2\).*\(g2\)/,
    harms: true,
    injected: () => {
      const step = streamedStep();
      const wrong = changeWaits(step, "sumSquares", () => []);
      return { ...changeWaits(wrong, "clip", () => []), plan: planDisjoint(step.schedule) };
    },
  },
  "a wait for the call before the right one": {
    rule: "order",
    says: /call 11 \(weightGradient2\).* reads .*\(dy\)/,
    harms: true,
    injected: () => {
      const step = streamedStep();
      return changeWaits(step, "weightGradient2", () => [indexOf(step, "squaredError")]);
    },
  },
  "a call on another stream than its waits assume": {
    rule: "order",
    says: /may still be running/,
    harms: true,
    injected: () => onSideStream(streamedStep(), "geluBackward", 1),
  },

  "a launch whose second kernel reads what its first one writes": {
    rule: "races",
    says: /matmul1 \+ gelu.* launches 2 kernels concurrently; kernels 0 and 1 race on .*\(h\) and .*\(h\) \(at least one writes\)/,
    harms: true,
    injected: () => sideBySideCalls(straightStep(), "matmul1", "gelu"),
  },
  "a launch whose kernels write the same memory under two names": {
    rule: "races",
    says: /clip \+ update1.* launches 2 kernels concurrently; .*\(gradients\).*\(g1\)/,
    harms: true,
    injected: () => sideBySideCalls(straightStep(), "clip", "update1"),
  },

  "a prefetch of memory that the preceding launch writes": {
    rule: "pdl",
    says: /call 2 \(gelu\).* prefetches .*\(h\).* while call 1 \(matmul1\).* writes/,
    harms: true,
    injected: () => splitReductions(straightStep(), "gelu", (slice) => slice.buffer.label === "h"),
  },
  "a prefetch of memory that the preceding launch writes through another buffer": {
    rule: "pdl",
    says: /call 18 \(update1\).* prefetches .*\(g1\).* while call 17 \(clip\).* writes .*\(gradients\)/,
    harms: true,
    injected: () => splitReductions(straightStep(), "update1", (slice) => slice.buffer.label === "g1"),
  },
  "PDL in spite of a wait for another stream": {
    rule: "pdl",
    says: /call 16 \(sumSquares\).* is marked for programmatic dependent launch but waits for other streams/,
    harms: true,
    injected: () => splitReductions(streamedStep(), "sumSquares", () => true),
  },
  "PDL of a stream's first call": {
    rule: "pdl",
    says: /call 0 \(clearGradients\).* is marked for programmatic dependent launch but is first on its stream/,
    injected: () => splitReductions(straightStep(), "clearGradients", () => false),
  },
  "a prefetch of memory that the call does not read": {
    rule: "pdl",
    says: /call 2 \(gelu\).* prefetches .*\(a\).*, which it does not read/,
    injected: () => {
      const step = straightStep();
      const [wrong] = accessesOf(step.program[2]!).flatMap(({ slice, writes }) => (writes ? [slice] : []));
      return withPdl(step, indexOf(step, "gelu"), [wrong!]);
    },
  },

  "the offsets of two buffers swapped": {
    rule: "lifetimes",
    says: /buffer \d+ \(\w+\) in bytes .* is in use from call .* on, and buffer \d+ \(\w+\) in bytes .* until call/,
    harms: true,
    injected: () => {
      const step = straightStep();
      return moveBuffers(step, { e: offsetOf(step, "a"), a: offsetOf(step, "e") });
    },
  },
  "an offset 256 bytes too low": {
    rule: "lifetimes",
    says: /\(a\) in bytes .* and buffer \d+ \(h\)/,
    harms: true,
    injected: () => {
      const step = straightStep();
      return moveBuffers(step, { a: offsetOf(step, "a") - 256 });
    },
  },
  "an offset 256 bytes too high": {
    rule: "lifetimes",
    says: /\(h\) in bytes/,
    harms: true,
    injected: () => {
      const step = straightStep();
      return moveBuffers(step, { h: offsetOf(step, "h") + 256 });
    },
  },
  "a live range one call short": {
    rule: "lifetimes",
    says: /\(da\) in bytes .* from call 12 \(matmulBackward\).*\(dy\) in bytes .* until call 12 \(matmulBackward\)/,
    injected: () => {
      const step = straightStep();
      return moveBuffers(step, { da: offsetOf(step, "dy") });
    },
  },
  "an offset reused in the middle of a live range": {
    rule: "lifetimes",
    says: /\(loss\) in bytes .* from call 6 \(mean\).*\(e\) in bytes .* until call 9 \(keepErrors\)/,
    harms: true,
    injected: () => {
      const step = straightStep();
      return moveBuffers(step, { loss: offsetOf(step, "e") });
    },
  },
  "a saved tensor freed before backward has read it": {
    rule: "lifetimes",
    says: /\(dy\) in bytes .* from call 10 \(errorBackward\).*\(h\) in bytes .* until call 13 \(geluBackward\)/,
    harms: true,
    injected: () => {
      const step = straightStep();
      return moveBuffers(step, { dy: offsetOf(step, "h") });
    },
  },
  "memory reused while another stream still uses it": {
    rule: "lifetimes",
    says: /\(dy\) in bytes .*\(e\) in bytes .* until call 9 \(keepErrors\)/,
    harms: true,
    injected: () => {
      const step = streamedStep();
      return moveBuffers(step, { dy: offsetOf(step, "e") });
    },
  },
  "a missing wait that only shared memory needs": {
    rule: "lifetimes",
    says: /\(dh\) in bytes .*\(e\) in bytes/,
    harms: true,
    injected: () => {
      const step = planWithWait();
      const last = indexOf(step, "keepErrors");
      return changeWaits(step, "geluBackward", (after) => after.filter((dependency) => dependency !== last));
    },
  },

  "a read of memory that nothing has written": {
    rule: "written",
    says: /call 15 \(sumSquares\) reads bytes \[0, 64\) of buffer \d+ \(norm\), and no earlier call writes byte 0/,
    injected: () => rewrite(straightStep(), (call) => (call.op === "clearNorm" ? undefined : call)),
  },
  "a read of partly written memory": {
    rule: "written",
    says: /call 16 \(sumSquares\) reads .* no earlier call writes byte 32 of it/,
    injected: () => withNormFilled(0, 32),
  },

  "weights that change without their copy": {
    rule: "copies",
    says: /call 1 \(update\) changes weights, and no call stores them in the copy: bytes \[0, 256\) of the weights/,
    injected: () =>
      copiedStep((sketch, memory) => {
        sketch.launch("matmul", { reads: [memory.copy], writes: [memory.y] });
        sketch.launch("update", { updates: [memory.weights] });
      }),
  },
  "a copy that is stored for some of the weights that change": {
    rule: "copies",
    says: /call 0 \(update\) changes weights, and no call stores them in the copy: bytes \[128, 256\)/,
    injected: () =>
      copiedStep((sketch, memory) => {
        sketch.launch("update", { updates: [memory.weights] });
        sketch.launch("cast", {
          reads: [copiedWeights(memory, 0, 32)],
          writes: [sliceOfElements(memory, 0, 32)],
        });
      }),
  },
  "a copy that is stored before a later change of the weights": {
    rule: "copies",
    says: /call 1 \(clamp\) changes weights, and no call stores them in the copy/,
    injected: () =>
      copiedStep((sketch, memory) => {
        sketch.program.push(updateCall(memory));
        sketch.launch("clamp", { updates: [copiedWeights(memory, 60)] });
      }),
  },
  "a read of a copy after its weights have changed": {
    rule: "copies",
    says: /call 1 \(matmul\) reads the copy after call 0 has changed its weights/,
    injected: () =>
      copiedStep((sketch, memory) => {
        sketch.launch("update", { updates: [memory.weights] });
        sketch.launch("matmul", { reads: [memory.copy], writes: [memory.y] });
        sketch.launch("cast", { reads: [copiedWeights(memory)], writes: [memory.copy] });
      }),
  },
  "a kernel that stores the copy of the old weights": {
    rule: "copies",
    says: /call 0 \(update\) stores the copy before it changes: bytes \[0, 256\)/,
    injected: () => copiedStep((sketch, memory) => void sketch.program.push(updateCall(memory, true))),
  },
  "a copy of something else": {
    rule: "copies",
    says: /call 0 \(fill\) stores in the copy without accessing the weights/,
    injected: () => copiedStep((sketch, { copy }) => void sketch.fill("fill", copy)),
  },
};

function onSideStream(step: ProposedStep, op: string, stream: number): ProposedStep {
  const calls = step.schedule.calls.map((scheduled) =>
    scheduled.call.op === op ? { ...scheduled, stream } : scheduled,
  );
  return { ...step, schedule: { calls } };
}

function withNormFilled(offset: number, size: number): ProposedStep {
  return rewrite(straightStep(), (call): Call => {
    if (call.op !== "clearNorm" || call.work.kind !== "fill") return call;
    return { ...call, work: { ...call.work, target: { ...call.work.target, offset, size } } };
  });
}

/**
 * The offset of `e`, which side stream 2 uses, is given to `dh` after a wait for the last call of that
 * stream.
 */
export function planWithWait(): ProposedStep {
  const step = streamedStep();
  const waiting = changeWaits(step, "geluBackward", (after) => [...after, indexOf(step, "keepErrors")]);
  const disjoint = planDisjoint(waiting.schedule);
  return moveBuffers({ ...waiting, plan: disjoint }, { e: disjoint.bytes, dh: disjoint.bytes });
}

/** The step with a PDL call that starts before its predecessor has ended, and prefetches some of its inputs. */
export function splitReductions(
  step: ProposedStep,
  op: string,
  isFetched: (slice: BufferSlice) => boolean,
): ProposedStep {
  return splitAt(step, indexOf(step, op), isFetched);
}

/** The same for the call at an index. */
export function splitAt(
  step: ProposedStep,
  index: number,
  isFetched: (slice: BufferSlice) => boolean,
): ProposedStep {
  const read = accessesOf(step.schedule.calls[index]!.call).flatMap(({ slice, reads }) =>
    reads ? [slice] : [],
  );
  return withPdl(step, index, read.filter(isFetched));
}

function withPdl(step: ProposedStep, index: number, prefetches: readonly BufferSlice[]): ProposedStep {
  const calls = step.schedule.calls.map((scheduled, at) =>
    at === index ? { ...scheduled, prefetches } : scheduled,
  );
  return { ...step, schedule: { calls } };
}
