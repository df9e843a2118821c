/**
 * Guards over the fields of modules: a number, a flag or a layer that `forward` read during a trace. Fields are plain
 * properties, so during a trace each is an accessor that records reads, and a plain property again afterwards. Private
 * (#) fields and modules that were never moved to a device are invisible. Only an audit of the compiled step detects
 * their changes.
 */

import { type GuardedField, type Guards, onTrace, tracing } from "../autograd/index.js";
import { WeakList } from "../units/index.js";
import { ownForward } from "./module-hooks.js";

/** The modules that were moved to each device, held weakly. */
const modulesOn = new WeakMap<object, WeakList<Rooted>>();

/** A module that can list all its submodules. */
interface Rooted {
  namedModules(): Iterable<readonly [path: string, module: object]>;
}

/** Registers the fields of a module and of its submodules for traces on a device; called when it moves there. */
export function registerFields(module: Rooted, device: object): void {
  const modules = modulesOn.get(device) ?? new WeakList();
  modulesOn.set(device, modules);
  modules.add(module);
}

/** Reads a field without recording the read. */
const peeks = new WeakMap<object, Map<string, () => unknown>>();

/**
 * A module's fields, for walks over a model. Only fields with objects count as read: a walk looks for layers and
 * parameters.
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

onTrace((device) => {
  const { guards } = tracing;
  const roots = modulesOn.get(device);
  if (!guards || !roots) return () => undefined;
  const modules = new Set(
    roots.items().flatMap((root) => [...root.namedModules()].map(([, module]) => module)),
  );
  const restores: (() => void)[] = [];
  for (const module of modules) watchFields(module as Fields, guards, restores);
  return () => {
    for (const restore of restores) restore();
  };
});

/** By field name, which any number of modules may share. */
const userFields = new Map<string, GuardedField<Fields>>();

type Fields = Record<string, unknown>;

function userField(key: string): GuardedField<Fields> {
  const existing = userFields.get(key);
  if (existing) return existing;
  const field: GuardedField<Fields> = {
    read: (module) => module[key],
    write: (module, value) => {
      module[key] = value;
    },
    isPlain: true,
  };
  userFields.set(key, field);
  return field;
}

/** A module's own `forward`, which calls its hooks. */
const forwardField: GuardedField<Fields> = { read: ownForward, write: () => undefined };

function watchFields(module: Fields, guards: Guards, restores: (() => void)[]): void {
  guards.noteRead(module, forwardField, ownForward(module), () => `the hooks of ${module.constructor.name}`);
  const peek = new Map<string, () => unknown>();
  peeks.set(module, peek);
  restores.push(() => peeks.delete(module));
  for (const [key, descriptor] of Object.entries(Object.getOwnPropertyDescriptors(module))) {
    if (!descriptor.configurable || !("value" in descriptor)) continue;
    let value: unknown = descriptor.value;
    const field = userField(key);
    const name = (): string => `${module.constructor.name}.${key}`;
    peek.set(key, () => value);
    Object.defineProperty(module, key, {
      configurable: true,
      enumerable: descriptor.enumerable ?? true,
      get: () => {
        guards.noteRead(module, field, value, name);
        return value;
      },
      set: (written: unknown) => {
        guards.noteUserWrite(module, field);
        value = written;
      },
    });
    restores.push(() => {
      const current = Object.getOwnPropertyDescriptor(module, key);
      // A field that the function deleted or redefined stays as the function left it.
      if (current?.get) Object.defineProperty(module, key, { ...descriptor, value });
    });
  }
}
