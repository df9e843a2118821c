/** Functions that see a gradient when all of its parts have arrived, and may replace it. */

import { type GuardedField, stateChanged, tracing } from "./guards.js";
import type { HookList, Leaf, RecordedOperand } from "./node.js";
import { keyOf } from "./paths.js";
import type { Value } from "./value.js";

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

/** The hooks of a value's gradient; undefined if it has no gradient. */
export function hooksOf(value: Pick<Value, "source" | "leaf">): HookList | undefined {
  const key = keyOf(value);
  if (!key || !("retained" in key)) return key?.hooks;
  if (!key.hooks) {
    key.hooks = new GradientHooks();
    tracing.guards?.noteCreated(key.hooks);
  }
  return key.hooks;
}

/** Lets a leaf accumulate the gradient of an op's result. False for leaves and values without a gradient. */
export function retainGradient(value: Pick<Value, "source" | "leaf">, into: () => Leaf): boolean {
  const key = keyOf(value);
  if (!key || !("retained" in key)) return false;
  key.retained ??= into();
  return true;
}

/** True if the gradient of an op's result is retained. */
export function retainsGradient(value: Pick<Value, "source" | "leaf">): boolean {
  const key = keyOf(value);
  return key !== undefined && "retained" in key && key.retained !== undefined;
}

/** Calls hooks in order. */
export function runHooks(hooks: readonly GradientHook[], gradient: RecordedOperand): RecordedOperand {
  return hooks.reduce((present, hook) => hook(present) ?? present, gradient);
}
