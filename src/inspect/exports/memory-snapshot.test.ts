/** Memory snapshots: the plan's block, the lifetime of every tensor, and the format of PyTorch's viewer. */

import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import fc from "fast-check";
import { openDevice } from "../../../test/support/devices.js";
import { effort } from "../../../test/support/effort.js";
import { makeFolder } from "../../../test/support/folders.js";
import { readPickle } from "../../../test/support/read-pickle.js";
import { repositoryRoot } from "../../../test/support/repository.js";
import { samplePlan } from "../../../test/support/sample-plan.js";
import { writeSampleRun } from "../../../test/support/sample-run.js";
import { openTestDriver } from "../../../test/support/test-device.js";
import { Linear } from "../../nn/index.js";
import { AdamW } from "../../optim/index.js";
import type { PlanRecord } from "../../records/index.js";
import { randn, type Tensor } from "../../tensor/index.js";
import { exportMemorySnapshot, memorySnapshot } from "./index.js";

type PlannedTensor = PlanRecord["memory"]["tensors"][number];

interface Entry {
  readonly action: string;
  readonly addr: number;
  readonly size: number;
  readonly time_us: number;
  readonly frames: readonly { readonly filename: string; readonly line: number; readonly name: string }[];
}

interface Snapshot {
  readonly segments: readonly { readonly address: number; readonly total_size: number }[];
  readonly device_traces: readonly (readonly Entry[])[];
}

const read = (plan: PlanRecord): Snapshot => readPickle(memorySnapshot(plan)) as Snapshot;

/** Lifetimes that overlap, nest and follow each other, at calls and between them, at different offsets. */
const randomPlan: fc.Arbitrary<PlanRecord> = fc
  .array(
    fc.record({
      birth: fc.nat(20).map((halves) => halves / 2),
      length: fc.nat(12).map((halves) => halves / 2),
      bytes: fc.oneof(fc.constantFrom(0, 256, 4096), fc.nat(5000), fc.constant(2 ** 33)),
      isSaved: fc.boolean(),
    }),
    { maxLength: 25 },
  )
  .chain((lives) => fc.tuple(fc.constant(lives), fc.boolean(), fc.boolean()))
  .map(([lives, isMeasured, hasPersistent]) => {
    const tensors: PlannedTensor[] = [];
    for (const [index, { birth, length, bytes, isSaved }] of lives.entries()) {
      const tensor = {
        label: `op ${index}`,
        type: `f32 [${index}]`,
        bytes,
        birth,
        death: birth + length,
        isSaved,
      };
      tensors.push({ ...tensor, offset: lowestOffset(tensor, tensors) });
    }
    const plan = samplePlan({ layers: 4 });
    const liveAt = lives.flatMap(({ birth }) => sumOf(tensors.filter((other) => isLive(other, birth))));
    return {
      ...plan,
      calls: plan.calls.map(({ us, ...call }, index) => (isMeasured ? { ...call, us: index } : call)),
      memory: {
        ...{ peak: Math.max(0, ...tensors.map(({ offset, bytes }) => offset + bytes)) },
        ...{ lowerBound: Math.max(0, ...liveAt), peakAt: 0, tensors },
        persistent: hasPersistent ? plan.memory.persistent : [],
      },
    };
  });

function isLive({ birth, death }: Pick<PlannedTensor, "birth" | "death">, at: number): boolean {
  return birth <= at && at <= death;
}

function sumOf(tensors: readonly { readonly bytes: number }[]): number {
  return tensors.reduce((sum, { bytes }) => sum + bytes, 0);
}

function lowestOffset(tensor: Omit<PlannedTensor, "offset">, placed: readonly PlannedTensor[]): number {
  let offset = 0;
  const concurrent = placed
    .filter((other) => other.bytes > 0 && other.birth <= tensor.death && tensor.birth <= other.death)
    .sort((one, other) => one.offset - other.offset);
  for (const other of concurrent)
    if (other.offset < offset + tensor.bytes) offset = Math.max(offset, other.offset + other.bytes);
  return offset;
}

test("allocations and frees balance, no allocation overlaps a live one, and the peak is the plan's", () => {
  fc.assert(
    fc.property(randomPlan, (plan) => {
      const { segments, device_traces: traces } = read(plan);
      const begin = segments.at(-1)?.address ?? 0;
      const live = new Map<number, number>();
      let most = 0;
      let freed = 0;
      for (const { action, addr, size } of traces[0] ?? []) {
        if (addr < begin || action === "segment_alloc") continue;
        if (action === "alloc") {
          for (const [other, bytes] of live) assert.ok(addr + size <= other || other + bytes <= addr);
          live.set(addr, size);
          most = Math.max(
            most,
            [...live.values()].reduce((sum, bytes) => sum + bytes, 0),
          );
        } else if (action === "free_completed") {
          assert.equal(live.get(addr), size);
          live.delete(addr);
          freed++;
        }
      }
      if (plan.memory.peak === 0) return;
      assert.equal(segments.at(-1)?.total_size, plan.memory.peak);
      assert.equal(live.size, 0);
      assert.equal(freed, plan.memory.tensors.filter(({ bytes }) => bytes > 0).length);
      assert.equal(most, plan.memory.lowerBound);
    }),
    { numRuns: effort({ quick: 60, thorough: 300 }) },
  );
});

interface Checked {
  readonly most: number;
  readonly stepMost: number;
  readonly allocs: number;
  readonly frees: number;
  readonly kept: number;
  readonly segments: readonly number[];
}

/** The results of the format's checker. Without Python: undefined, and the test is skipped with a message. */
function check(context: TestContext, snapshots: readonly Uint8Array[]): readonly Checked[] | undefined {
  const folder = makeFolder();
  const paths = snapshots.map((bytes, index) => {
    const path = join(folder, `${index}.pickle`);
    writeFileSync(path, bytes);
    return path;
  });
  const checker = join(repositoryRoot, "test/support/check_memory_snapshot.py");
  const { status, stdout, stderr, error } = spawnSync("python3", [checker, ...paths], { encoding: "utf8" });
  if (error) {
    context.skip(`no python3: ${error.message}`);
    return undefined;
  }
  if (status !== 0) throw new Error(stderr);
  return stdout
    .trim()
    .split("\n")
    .map((line) => JSON.parse(line) as Checked);
}

test("a strict reader of PyTorch's format accepts snapshots of all kinds of plans, and computes their peaks", (context) => {
  const plans = [
    samplePlan(),
    ...fc.sample(randomPlan, { numRuns: effort({ quick: 12, thorough: 60 }), seed: 7 }),
  ];
  const results = check(context, plans.map(memorySnapshot));
  for (const [index, checked] of (results ?? []).entries()) {
    const { peak, lowerBound, tensors, persistent } = plans[index]!.memory;
    const persistentBytes = sumOf(persistent);
    assert.deepEqual(
      checked.segments,
      [persistentBytes, peak].filter((bytes) => bytes > 0),
    );
    if (peak > 0) assert.equal(checked.stepMost, lowerBound);
    assert.equal(checked.most, persistentBytes + lowerBound);
    assert.equal(checked.kept, persistentBytes);
    assert.equal(checked.frees, tensors.filter(({ bytes }) => bytes > 0).length);
  }
});

test("the plan of a compiled training step is accepted too, with the peak of step.memory()", (context) => {
  const driver = openTestDriver({ threads: 1 });
  const device = openDevice({ driver });
  const [first, second] = [new Linear(6, 40).to(device), new Linear(40, 3).to(device)];
  const adam = new AdamW([...first.parameters(), ...second.parameters()], { lr: 0.01 });
  const step = device.compile((x: Tensor) => {
    const loss = second.forward(first.forward(x).gelu("tanh")).square().mean();
    loss.backward();
    adam.step();
    adam.zeroGrad();
    return { loss };
  });
  const input = randn([64, 6], { device });
  step(input);
  const [report] = step.report();
  const { peak, lowerBound, persistent } = step.memory(input);
  const results = check(context, [memorySnapshot({ ...report!, at: "2026-01-05T12:00:00.000Z", step: 0 })]);
  if (results) {
    assert.deepEqual(results[0]?.segments, [sumOf(persistent), peak]);
    assert.equal(results[0]?.stepMost, lowerBound);
    assert.equal(results[0]?.kept, sumOf(persistent));
  }
  step.close();
  device.close();
  driver.close();
});

test("the reader detects two live tensors that overlap", (context) => {
  const plan = samplePlan();
  const [one, other, ...rest] = plan.memory.tensors;
  const clash = { ...other!, offset: one!.offset, birth: one!.birth, death: one!.death };
  const bytes = memorySnapshot({ ...plan, memory: { ...plan.memory, tensors: [one!, clash, ...rest] } });
  try {
    const results = check(context, [bytes]);
    assert.equal(results, undefined);
  } catch (error) {
    assert.match(String(error), /overlaps what is live/);
  }
});

test("a block has the op, the type, whether it is saved, and its first and last call", () => {
  const plan = samplePlan();
  const saved = plan.memory.tensors.find(({ isSaved }) => isSaved)!;
  const { device_traces: traces } = read(plan);
  const frames = traces[0]!
    .filter(({ action }) => action !== "segment_alloc")
    .map((entry) => entry.frames)
    .find(([frame]) => frame?.name.startsWith(saved.label));
  const [first, last] = [plan.calls[saved.birth]!, plan.calls[saved.death]!];
  assert.deepEqual(frames, [
    { filename: "tensor", line: saved.birth, name: `${saved.label} ${saved.type}, saved for backward` },
    { filename: "from call", line: saved.birth, name: `${first.op}, ${first.phase}, kernel ${first.kernel}` },
    { filename: "to call", line: saved.death, name: `${last.op}, ${last.phase}, kernel ${last.kernel}` },
  ]);
});

test("a run's plan is exported by its number, and an unknown one is rejected with the available ones", () => {
  const run = writeSampleRun(makeFolder(), "first", {
    plans: [samplePlan(), samplePlan({ name: "test step", layers: 2 })],
  });
  const { name, type, bytes } = exportMemorySnapshot(run.path, 1);
  assert.deepEqual([name, type], ["first-memory-1.pickle", "application/octet-stream"]);
  const { segments } = readPickle(bytes) as Snapshot;
  assert.equal(segments.at(-1)?.total_size, samplePlan({ layers: 2 }).memory.peak);
  assert.throws(
    () => exportMemorySnapshot(run.path, 2),
    /The run first has no plan 2: its plans are 0 to 1\./,
  );
  run.close();
});
