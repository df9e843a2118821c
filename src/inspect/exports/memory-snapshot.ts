/**
 * A plan's memory for PyTorch's memory viewer: the dictionary that `torch.cuda.memory._dump_snapshot` pickles. The plan's block is one
 * segment; each tensor is allocated before its first call and freed after its last. Persistent memory is another segment, allocated
 * before the step and never freed.
 */

import type { PlanRecord } from "../../records/index.js";
import { PickleTuple, type PickleValue, pickle } from "./pickle.js";

type PlannedTensor = PlanRecord["memory"]["tensors"][number];

/** Made-up addresses of the two segments, because a plan has offsets only. Their distance exceeds any device's memory. */
const addresses = { persistent: 0x7000_0000_0000, step: 0x7800_0000_0000 } as const;

/** The min. size of a large segment in PyTorch's allocator. */
const largeBytes = 2 ** 20;

/** A type, because an interface is not assignable to `PickleValue`. */
type Frame = {
  readonly filename: string;
  readonly line: number;
  readonly name: string;
};

interface Block {
  readonly address: number;
  readonly bytes: number;
  readonly frames: readonly Frame[];
}

/** The pickle for https://docs.pytorch.org/memory_viz. */
export function memorySnapshot(plan: PlanRecord): Uint8Array {
  const { peak, tensors, persistent } = plan.memory;
  const blocks = persistentBlocks(persistent);
  const persistentBytes = blocks.reduce((sum, { bytes }) => sum + bytes, 0);
  const startUs = microsecondsOf(plan.at);
  const events = [
    ...(persistentBytes > 0
      ? [entry("segment_alloc", segmentBlock(addresses.persistent, persistentBytes), startUs)]
      : []),
    ...(peak > 0 ? [entry("segment_alloc", segmentBlock(addresses.step, peak), startUs)] : []),
    ...blocks.map((block) => entry("alloc", block, startUs)),
    ...stepEvents(plan, tensors, startUs),
  ];
  const segments = [
    ...(persistentBytes > 0 ? [segment(addresses.persistent, persistentBytes, blocks)] : []),
    ...(peak > 0 ? [segment(addresses.step, peak, [])] : []),
  ];
  return pickle({
    segments,
    device_traces: [events],
    allocator_settings: {
      PYTORCH_CUDA_ALLOC_CONF: "",
      expandable_segments: false,
      written_by: "Holdfast: one segment is the plan's block, the other persistent memory",
      plan: `${plan.name} (${plan.inputs})`,
    },
    external_annotations: [],
  });
}

/** Placed one after the other, because a plan only has their sizes. */
function persistentBlocks(persistent: PlanRecord["memory"]["persistent"]): Block[] {
  let address: number = addresses.persistent;
  return persistent
    .filter(({ bytes }) => bytes > 0)
    .map(({ label, bytes }) => {
      const block = { address, bytes, frames: [frame("persistent memory", 0, label)] };
      address += bytes;
      return block;
    });
}

/**
 * A tensor lives from its first call to its last, both included: at each call allocations come before frees, and freed memory is
 * available to the next call.
 */
function stepEvents(plan: PlanRecord, tensors: readonly PlannedTensor[], startUs: number): PickleValue[] {
  const clock = callTimes(plan);
  const events = tensors
    .filter(({ bytes }) => bytes > 0)
    .flatMap((tensor) => {
      const block = {
        ...{ address: addresses.step + tensor.offset, bytes: tensor.bytes },
        frames: framesOf(plan, tensor),
      };
      return [
        { at: tensor.birth, isFree: false, block },
        { at: tensor.death, isFree: true, block },
      ];
    })
    .sort((a, b) => a.at - b.at || Number(a.isFree) - Number(b.isFree));
  return events.flatMap(({ at, isFree, block }) => {
    // A half is a point between two calls of the main stream.
    const timeUs = startUs + clock(isFree ? Math.floor(at) + 1 : Math.ceil(at));
    // Like PyTorch, two entries per free: requested and completed.
    return isFree
      ? [entry("free_requested", block, timeUs), entry("free_completed", block, timeUs)]
      : [entry("alloc", block, timeUs)];
  });
}

/** Microseconds from the start of the step to a call: measured, or 1 µs per call. */
function callTimes({ calls }: PlanRecord): (at: number) => number {
  const isMeasured = calls.some(({ us }) => us !== undefined);
  const starts = [0];
  for (const { us } of calls) starts.push((starts.at(-1) ?? 0) + (isMeasured ? Math.max(0, us ?? 0) : 1));
  const end = starts.at(-1) ?? 0;
  return (at) => Math.round(starts[Math.max(0, at)] ?? end);
}

/** The viewer's stack of a block: `file:line:name` per frame. The line is the call's index, as in `explain()`. */
function framesOf({ calls }: PlanRecord, { label, type, birth, death, isSaved }: PlannedTensor): Frame[] {
  const first = Math.max(0, Math.ceil(birth));
  const last = Math.max(0, Math.floor(death));
  const producer = calls[first];
  const lastReader = calls[last];
  return [
    frame("tensor", first, `${label} ${type ?? "scratch"}${isSaved ? ", saved for backward" : ""}`),
    ...(producer
      ? [frame("from call", first, `${producer.op}, ${producer.phase}, kernel ${producer.kernel}`)]
      : []),
    ...(lastReader
      ? [frame("to call", last, `${lastReader.op}, ${lastReader.phase}, kernel ${lastReader.kernel}`)]
      : []),
  ];
}

function frame(filename: string, line: number, name: string): Frame {
  return { filename, line, name };
}

function segmentBlock(address: number, bytes: number): Block {
  const name = address === addresses.step ? "the plan's block" : "persistent memory";
  return { address, bytes, frames: [frame("segment", 0, name)] };
}

/** One action of the allocator. */
function entry(action: string, { address, bytes, frames }: Block, timeUs: number): PickleValue {
  return {
    ...{ action, addr: address, size: bytes, stream: 0, time_us: timeUs },
    ...{ frames, pool_id: new PickleTuple(0, 0) },
  };
}

/** A segment after the step. Its blocks fill it. */
function segment(address: number, bytes: number, blocks: readonly Block[]): PickleValue {
  const used = blocks.reduce((sum, block) => sum + block.bytes, 0);
  const free = { address: address + used, bytes: bytes - used, frames: [] };
  return {
    ...{ device: 0, address, total_size: bytes, stream: 0, is_expandable: false },
    ...{ allocated_size: used, active_size: used, requested_size: used },
    ...{ segment_type: bytes > largeBytes ? "large" : "small", segment_pool_id: new PickleTuple(0, 0) },
    frames: segmentBlock(address, bytes).frames,
    blocks: [
      ...blocks.map((block) => blockOf(block, "active_allocated")),
      ...(free.bytes > 0 ? [blockOf(free, "inactive")] : []),
    ],
  };
}

function blockOf({ address, bytes, frames }: Block, state: string): PickleValue {
  const requested = state === "inactive" ? 0 : bytes;
  return { address, size: bytes, requested_size: requested, state, frames };
}

function microsecondsOf(at: string): number {
  const ms = Date.parse(at);
  return Number.isNaN(ms) ? 0 : ms * 1000;
}
