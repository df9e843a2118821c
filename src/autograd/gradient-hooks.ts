/** Functions that see a gradient when all of its parts have arrived, and may replace it. */

import { type GuardedField, stateChanged, tracing } from "./guards.js";
import type { RecordedOperand } from "./node.js";

/** Returns another gradient, or undefined to keep it. */
export type GradientHook = (gradient: RecordedOperand) => RecordedOperand | undefined;

export class GradientHooks {
  #hooks: readonly GradientHook[] = [];
  /** A plan is valid for the hooks that its trace has called. */
  static readonly #field: GuardedField<GradientHooks> = {
    read: (hooks) => hooks.#hooks,
    write: (hooks, list) => {
      hooks.#hooks = list as readonly GradientHook[];
    },
  };

  get list(): readonly GradientHook[] {
    tracing.guards?.noteRead(this, GradientHooks.#field, this.#hooks, hooksName);
    return this.#hooks;
  }

  /** Appends a hook. The result removes it. */
  add(hook: GradientHook): () => void {
    this.#set([...this.#hooks, hook]);
    return () => this.#set(this.#hooks.filter((other) => other !== hook));
  }

  #set(hooks: readonly GradientHook[]): void {
    tracing.guards?.noteWrite(this, GradientHooks.#field, hooks, hooksName);
    this.#hooks = hooks;
    stateChanged();
  }
}

const hooksName = (): string => "the hooks of a tensor";

/** Calls hooks in order. */
export function runHooks(hooks: readonly GradientHook[], gradient: RecordedOperand): RecordedOperand {
  return hooks.reduce((present, hook) => hook(present) ?? present, gradient);
}
