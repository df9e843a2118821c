/**
 * A plan's memory as PyTorch's memory viewer reads it: the dictionary that `torch.cuda.memory._dump_snapshot` pickles. The plan's
 * block is one segment; each tensor is allocated before the first call that needs it and freed after the last. Persistent memory is
 * a segment of its own, allocated before the step and never freed.
 */

import type { PlanRecord } from "../../records/index.js";
import { PickleTuple, type PickleValue, pickle } from "./pickle.js";

type PlannedTensor = PlanRecord["memory"]["tensors"][number];

/** Where the two segments are said to lie: a plan knows offsets alone. Apart by more than any device has. */
const addresses = { persistent: 0x7000_0000_0000, step: 0x7800_0000_0000 } as const;

/** PyTorch's allocator calls a segment large from here on. */
const largeBytes = 2 ** 20;

/** A type, not an interface: that would be no `PickleValue`. */
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
  const kept = persistentBlocks(persistent);
  const keptBytes = kept.reduce((sum, { bytes }) => sum + bytes, 0);
  const beganUs = microsecondsOf(plan.at);
  const events = [
    ...(keptBytes > 0
      ? [entry("segment_alloc", segmentBlock(addresses.persistent, keptBytes), beganUs)]
      : []),
    ...(peak > 0 ? [entry("segment_alloc", segmentBlock(addresses.step, peak), beganUs)] : []),
    ...kept.map((block) => entry("alloc", block, beganUs)),
    ...stepEvents(plan, tensors, beganUs),
  ];
  const segments = [
    ...(keptBytes > 0 ? [segment(addresses.persistent, keptBytes, kept)] : []),
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

/** One behind the other; a plan knows their sizes alone. */
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
 * A tensor lives through the calls from its first to its last, both included: at one call what is born comes before what dies,
 * and the memory of a tensor that has died is free for the next call.
 */
function stepEvents(plan: PlanRecord, tensors: readonly PlannedTensor[], beganUs: number): PickleValue[] {
  const clock = callTimes(plan);
  const moments = tensors
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
    .sort((one, other) => one.at - other.at || Number(one.isFree) - Number(other.isFree));
  return moments.flatMap(({ at, isFree, block }) => {
    // Halves lie between two calls of the main stream.
    const timeUs = beganUs + clock(isFree ? Math.floor(at) + 1 : Math.ceil(at));
    // Two entries for a free, as PyTorch writes them: asked for, and done.
    return isFree
      ? [entry("free_requested", block, timeUs), entry("free_completed", block, timeUs)]
      : [entry("alloc", block, timeUs)];
  });
}

/** Microseconds from the step's begin to a call's: as measured, or one a call where they were not. */
function callTimes({ calls }: PlanRecord): (at: number) => number {
  const isMeasured = calls.some(({ us }) => us !== undefined);
  const begins = [0];
  for (const { us } of calls) begins.push((begins.at(-1) ?? 0) + (isMeasured ? Math.max(0, us ?? 0) : 1));
  const end = begins.at(-1) ?? 0;
  return (at) => Math.round(begins[Math.max(0, at)] ?? end);
}

/** What the viewer writes under a block: `file:line:name`, a line each. The line is the call's number, as in `explain()`. */
function framesOf({ calls }: PlanRecord, { label, type, birth, death, isSaved }: PlannedTensor): Frame[] {
  const first = Math.max(0, Math.ceil(birth));
  const last = Math.max(0, Math.floor(death));
  const made = calls[first];
  const read = calls[last];
  return [
    frame("tensor", first, `${label} ${type ?? "scratch"}${isSaved ? ", saved for backward" : ""}`),
    ...(made ? [frame("from call", first, `${made.op}, ${made.phase}, kernel ${made.kernel}`)] : []),
    ...(read ? [frame("to call", last, `${read.op}, ${read.phase}, kernel ${read.kernel}`)] : []),
  ];
}

function frame(filename: string, line: number, name: string): Frame {
  return { filename, line, name };
}

function segmentBlock(address: number, bytes: number): Block {
  const name = address === addresses.step ? "the plan's block" : "persistent memory";
  return { address, bytes, frames: [frame("segment", 0, name)] };
}

/** What the allocator did, once. */
function entry(action: string, { address, bytes, frames }: Block, timeUs: number): PickleValue {
  return {
    ...{ action, addr: address, size: bytes, stream: 0, time_us: timeUs },
    ...{ frames, pool_id: new PickleTuple(0, 0) },
  };
}

/** A segment as it stands when the step has ended; its blocks fill it. */
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
