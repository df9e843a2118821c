/** A step in memory like `PlacedStep`, without the verifier: for tests that show the verifier's purpose. */

import type { Runtime, Storage } from "holdfast/internals";
import { emitCommands, type StepCommand, submitCommands } from "../../src/compile/execute/emit.js";
import type { BufferSlice } from "../../src/compile/program/program.js";
import type { ProposedStep } from "./proposed-steps.js";

export class UnverifiedStep {
  readonly #runtime: Runtime;
  readonly #block: Storage;
  readonly #views: Storage[] = [];
  readonly #pieces: readonly StepCommand[];

  /** Calls run in the order of the schedule, whatever their streams. */
  constructor(runtime: Runtime, { schedule, plan }: Pick<ProposedStep, "schedule" | "plan">) {
    this.#runtime = runtime;
    this.#block = runtime.arena.allocate(plan.bytes, "unverified step");
    runtime.arena.pin(this.#block, "unverified step");
    const resolve = ({ buffer, offset, size }: BufferSlice): Storage => {
      // A buffer without an offset is put at the beginning, like by a planner that missed it.
      const start = buffer.storage ? 0 : (plan.offsets.get(buffer) ?? 0);
      const view = runtime.view(buffer.storage ?? this.#block, start + offset, size, buffer.label);
      if (view.kind === "step") this.#views.push(view);
      return view;
    };
    try {
      const calls = schedule.calls.map(({ call }) => call);
      this.#pieces = emitCommands(runtime, calls, resolve, { schedule: schedule.calls });
    } catch (error) {
      this.close();
      throw error;
    }
  }

  readonly run = (): void => submitCommands(this.#runtime, this.#pieces);

  close(): void {
    const { arena } = this.#runtime;
    for (const view of this.#views) arena.dropView(view);
    arena.unpin(this.#block);
    arena.free(this.#block);
  }
}
