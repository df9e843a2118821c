/**
 * Guards over the fields of modules: a number, a flag or a layer that `forward` read while a step was traced. Fields are
 * plain properties, so while a trace runs each is an accessor that notes reads, and a plain property again after it.
 * Private (#) fields can't be seen; a compiled step audits what they change.
 */

import { type Guards, onTrace, tracing } from "../autograd/index.js";

/** All modules that still exist. */
const modules = new Set<WeakRef<object>>();
/** Above this many entries, those of collected modules are dropped. */
let sweepAt = 1024;

/** Makes a module's fields known to traces; called when it is made. */
export function registerFields(module: object): void {
  modules.add(new WeakRef(module));
  if (modules.size < sweepAt) return;
  for (const reference of modules) if (!reference.deref()) modules.delete(reference);
  sweepAt = Math.max(1024, 2 * modules.size);
}

/** Looks at a field of a module whose reads are noted, without a note. */
const peeks = new WeakMap<object, Map<string, () => unknown>>();

/**
 * A module's fields, for walks over a model. Only fields with objects count as read: a walk looks for layers and
 * parameters, and what else a model has does not matter to it.
 */
export function* fieldsOf(module: object): Generator<[name: string, field: unknown]> {
  const watched = peeks.get(module);
  for (const key of Object.keys(module)) {
    const read = (): unknown => (module as Record<string, unknown>)[key];
    const peek = watched?.get(key);
    const field = peek ? peek() : read();
    yield [key, typeof field === "object" && field !== null ? read() : field];
  }
}

onTrace(() => {
  const { guards } = tracing;
  if (!guards) return () => undefined;
  const restores: (() => void)[] = [];
  for (const reference of modules) {
    const module = reference.deref();
    if (module) watchFields(module, guards, restores);
    else modules.delete(reference);
  }
  return () => {
    for (const restore of restores) restore();
  };
});

function watchFields(module: object, guards: Guards, restores: (() => void)[]): void {
  const peek = new Map<string, () => unknown>();
  peeks.set(module, peek);
  restores.push(() => peeks.delete(module));
  for (const [key, descriptor] of Object.entries(Object.getOwnPropertyDescriptors(module))) {
    if (!descriptor.configurable || !("value" in descriptor)) continue;
    let value: unknown = descriptor.value;
    const name = (): string => `${module.constructor.name}.${key}`;
    peek.set(key, () => value);
    Object.defineProperty(module, key, {
      configurable: true,
      enumerable: descriptor.enumerable ?? true,
      get: () => {
        guards.noteRead(module, key, value, name);
        return value;
      },
      set: (written: unknown) => {
        guards.noteUserWrite(module, key);
        value = written;
      },
    });
    restores.push(() => {
      const current = Object.getOwnPropertyDescriptor(module, key);
      // A field that the function deleted or defined anew stays as the function left it.
      if (current?.get) Object.defineProperty(module, key, { ...descriptor, value });
    });
  }
}
