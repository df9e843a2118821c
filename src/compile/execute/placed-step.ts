/** A planned step in memory: verified with its addresses, its kernels loaded, its commands ready to submit. */

import type { Runtime, ScratchMemory, Storage } from "../../runtime/index.js";
import { type Span, span } from "../../units/index.js";
import type { PlannedStep } from "../planned-step.js";
import { workspacesOfLoop } from "../program/kinds/loop.js";
import {
  accessesOf,
  type Buffer,
  type BufferSlice,
  type Call,
  isSameSlice,
  type Plan,
  type Schedule,
} from "../program/program.js";
import { extentOf } from "../program/slices.js";
import { submitterOf } from "../schedule/streams.js";
import { verifyPlan } from "../verify/verify.js";
import { emitCommands, type StepCommand, submitCommands, withPdl } from "./emit.js";

export class PlacedStep {
  readonly #runtime: Runtime;
  readonly #schedule: Schedule;
  readonly #memory: StepMemory;
  readonly commands: readonly StepCommand[];
  /** The persistent memory that it writes: whole storages, and the exact bytes. */
  readonly written: readonly Storage[];
  readonly writtenSpans: readonly Span[];
  /** Submits all of its commands. */
  readonly run: () => void;

  /** Places a plan in a block that has at least its size. */
  static place(runtime: Runtime, { schedule, plan }: PlannedStep, block: StepBlock): PlacedStep {
    const calls = schedule.calls.map(({ call }) => call);
    const memory = new StepMemory(runtime, plan, block);
    try {
      verifyPlan(calls, schedule, plan, memory.block?.span);
      const commands = emitCommands(runtime, calls, (slice) => memory.resolve(slice), {
        schedule: schedule.calls,
      });
      return new PlacedStep(runtime, schedule, memory, commands);
    } catch (error) {
      memory.close();
      throw error;
    }
  }

  private constructor(
    runtime: Runtime,
    schedule: Schedule,
    memory: StepMemory,
    commands: readonly StepCommand[],
  ) {
    this.#runtime = runtime;
    this.#schedule = schedule;
    this.#memory = memory;
    this.commands = commands;
    this.run = submitterOf(runtime, schedule, commands);
    const slices = writtenSlices(this.#calls);
    this.written = [...new Set(slices.flatMap(({ buffer }) => buffer.storage ?? []))];
    this.writtenSpans = slices.map((slice) => spanOf(slice));
  }

  get #calls(): readonly Call[] {
    return this.#schedule.calls.map(({ call }) => call);
  }

  /**
   * Submits all of its commands to the runtime's stream, in the order in which they are submitted to several streams: each call follows all
   * that it waits for. Without programmatic dependent launch, which depends on what precedes a call on its stream.
   */
  runInOrder(): void {
    submitCommands(
      this.#runtime,
      this.commands.map((command) => withPdl(command, false)),
    );
  }

  /** The same step without programmatic dependent launch, in the same memory: closing one closes both. */
  serialized(): PlacedStep {
    const commands = this.commands.map((command) => withPdl(command, false));
    return new PlacedStep(this.#runtime, this.#schedule, this.#memory, commands);
  }

  /** Its step memory, for a capture. */
  get scratch(): ScratchMemory | undefined {
    const { block } = this.#memory;
    if (!block) return undefined;
    return {
      storage: block,
      nameAt: (offset) => this.#memory.lastWrittenAt(offset, this.#calls)?.label ?? block.label,
      isComparable: (offset, size) => !this.#memory.hasWorkspaceIn(offset, size, this.#calls),
    };
  }

  close(): void {
    this.#memory.close();
  }
}

/**
 * One block of the arena. Plans that never run at the same time may share it, because no step memory outlives a run. The creator and
 * every placed plan hold it, and the last of them frees it.
 */
export class StepBlock {
  readonly #runtime: Runtime;
  readonly storage: Storage | undefined;
  #holders = 1;

  constructor(runtime: Runtime, bytes: number, label: string) {
    this.#runtime = runtime;
    const { arena } = runtime;
    this.storage = bytes > 0 ? arena.allocate(bytes, label) : undefined;
    if (this.storage) arena.pin(this.storage, label);
  }

  hold(): void {
    this.#holders += 1;
  }

  release(): void {
    this.#holders -= 1;
    const { arena } = this.#runtime;
    if (this.#holders > 0 || !this.storage || !arena.isLive(this.storage)) return;
    arena.unpin(this.storage);
    if (arena.isLive(this.storage)) arena.free(this.storage);
  }
}

/** The memory of a plan: a block of the arena, and views of it and of persistent memory. */
class StepMemory {
  readonly #runtime: Runtime;
  readonly #plan: Plan;
  readonly #views = new Map<string, Storage>();
  readonly #block: StepBlock;
  #isOpen = true;

  constructor(runtime: Runtime, plan: Plan, block: StepBlock) {
    this.#runtime = runtime;
    this.#plan = plan;
    this.#block = block;
    block.hold();
  }

  get block(): Storage | undefined {
    return this.#block.storage;
  }

  /** The buffer that these calls write last at an offset of the block. */
  lastWrittenAt(offset: number, calls: readonly Call[]): Buffer | undefined {
    for (const { slice } of this.#writesIn(offset, 1, calls)) return slice.buffer;
    return undefined;
  }

  /** True if the last write to some byte of the range may be by a GEMM to its workspace. */
  hasWorkspaceIn(offset: number, size: number, calls: readonly Call[]): boolean {
    for (const { call, slice, coversAll } of this.#writesIn(offset, size, calls)) {
      if (workspacesOf(call).some((workspace) => isSameSlice(slice, workspace))) return true;
      if (coversAll) return false;
    }
    return false;
  }

  /** The writes to a range of the block, the last one first. */
  *#writesIn(offset: number, size: number, calls: readonly Call[]) {
    for (const call of calls.toReversed()) {
      for (const { slice, writes } of accessesOf(call)) {
        const start = this.#plan.offsets.get(slice.buffer);
        if (!writes || start === undefined) continue;
        const first = start + slice.offset;
        const end = first + slice.size;
        if (first >= offset + size || end <= offset) continue;
        yield { call, slice, coversAll: first <= offset && offset + size <= end };
      }
    }
  }

  resolve({ buffer, offset, size }: BufferSlice): Storage {
    const key = `${buffer.id} ${offset} ${size} ${buffer.storage ? buffer.storage.span.address : ""}`;
    const existing = this.#views.get(key);
    if (existing) return existing;
    const home = buffer.storage ?? this.block;
    const start = buffer.storage ? 0 : this.#plan.offsets.get(buffer);
    if (!home || start === undefined) throw new Error(`Buffer "${buffer.label}" has no offset in the plan.`);
    const view = this.#runtime.view(home, start + offset, size, buffer.label);
    // A pinned block outlives a reset; a view of it does so only if it is pinned too.
    if (view.kind === "step") this.#runtime.arena.pin(view, home.label);
    this.#views.set(key, view);
    return view;
  }

  /** Idempotent. */
  close(): void {
    const { arena } = this.#runtime;
    for (const view of [...this.#views.values()].reverse()) {
      if (view.kind !== "step" || !arena.isLive(view)) continue;
      arena.unpin(view);
      if (arena.isLive(view)) arena.dropView(view);
    }
    this.#views.clear();
    if (this.#isOpen) this.#block.release();
    this.#isOpen = false;
  }
}

function writtenSlices(calls: readonly Call[]): BufferSlice[] {
  const accesses = calls.flatMap((call) => accessesOf(call));
  return accesses.filter(({ slice, writes }) => writes && slice.buffer.storage).map(({ slice }) => slice);
}

function spanOf(slice: BufferSlice): Span {
  const { from, to } = extentOf(slice);
  return span(from, to - from);
}

function workspacesOf({ work }: Call): readonly BufferSlice[] {
  if (work.kind === "gemm") return work.problem.scratch ? [work.problem.scratch] : [];
  return work.kind === "loop" ? workspacesOfLoop(work) : [];
}
