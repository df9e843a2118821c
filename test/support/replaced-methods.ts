/** Injects a fault into a class while a function runs: methods of its prototype are replaced, then restored. */

export function withMethods<Instance extends object, T>(
  prototype: Instance,
  methods: Partial<Instance>,
  run: () => T,
): T {
  const names = Object.keys(methods) as (keyof Instance)[];
  const originals = names.map((name) => [name, prototype[name]] as const);
  Object.assign(prototype, methods);
  try {
    return run();
  } finally {
    for (const [name, original] of originals) prototype[name] = original;
  }
}
