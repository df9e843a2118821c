/** Import cycles: groups of files that import each other, directly or through others. Type imports count. */

import { posix } from "node:path";
import type { SourceImports } from "./import-rules.js";

/** The files that each file imports, by path. */
export type ImportGraph = ReadonlyMap<string, readonly string[]>;

/** The graph of relative imports among these files. An import of a file that is not listed is left out. */
export function importGraph(sources: readonly SourceImports[]): ImportGraph {
  const files = new Set(sources.map(({ file }) => file));
  const resolve = (file: string, specifier: string): string[] => {
    if (!specifier.startsWith(".")) return [];
    const target = posix.join(posix.dirname(file), specifier);
    const candidates = [target, target.replace(/\.js$/, ".ts"), target.replace(/\.js$/, ".tsx")];
    return candidates.filter((candidate) => files.has(candidate)).slice(0, 1);
  };
  return new Map(
    sources.map(({ file, imports }) => [file, imports.flatMap((specifier) => resolve(file, specifier))]),
  );
}

/**
 * Every import cycle, as the sorted list of its files: the strongly connected components with more than one file, and
 * files that import themselves. Tarjan's algorithm.
 */
export function importCycles(graph: ImportGraph): string[][] {
  const order = new Map<string, number>();
  const stack: string[] = [];
  const onStack = new Set<string>();
  const cycles: string[][] = [];

  function visit(file: string): number {
    const position = order.size;
    order.set(file, position);
    stack.push(file);
    onStack.add(file);
    const targets = graph.get(file) ?? [];
    let low = position;
    for (const target of targets) {
      const seenAt = order.get(target);
      if (seenAt === undefined) low = Math.min(low, visit(target));
      else if (onStack.has(target)) low = Math.min(low, seenAt);
    }
    if (low === position) {
      const component = stack.splice(stack.lastIndexOf(file));
      for (const member of component) onStack.delete(member);
      if (component.length > 1 || targets.includes(file)) cycles.push(component.sort());
    }
    return low;
  }

  for (const file of graph.keys()) if (!order.has(file)) visit(file);
  return cycles.sort((a, b) => (a.join() < b.join() ? -1 : 1));
}
