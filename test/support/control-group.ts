/**
 * A control group of the kernel, for tests of a container's limits; root can create one if its folder is
 * writable.
 */

import { existsSync, mkdirSync, readFileSync, rmdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after } from "node:test";

/** What a group limits: the bytes of its processes, or the number of their tasks (processes and threads). */
type Controller = "memory" | "pids";

interface GroupKind {
  /** The folder in which new groups are created. */
  readonly parent: string;
  readonly limit: string;
}

function findKind(controller: Controller): GroupKind | string {
  if (process.platform !== "linux") return "there are no control groups here";
  const groups = readFileSync("/proc/self/cgroup", "utf8");
  const version1 = new RegExp(`^\\d+:[^:\\n]*\\b${controller}\\b[^:\\n]*:(/.*)$`, "m").exec(groups)?.[1];
  const limit = controller === "memory" ? "memory.limit_in_bytes" : "pids.max";
  const kinds: readonly GroupKind[] = [
    ...(version1 === undefined ? [] : [{ parent: join("/sys/fs/cgroup", controller, version1), limit }]),
    { parent: "/sys/fs/cgroup", limit: `${controller}.max` },
  ];
  for (const { parent, limit } of kinds) {
    const folder = join(parent, `holdfast-try-${process.pid}`);
    try {
      mkdirSync(folder);
    } catch {
      continue;
    }
    const hasLimit = existsSync(join(folder, limit));
    rmdirSync(folder);
    if (hasLimit) return { parent, limit };
  }
  return `no control group with a limit of ${controller} can be created here`;
}

const kinds: Readonly<Record<Controller, GroupKind | string>> = {
  memory: findKind("memory"),
  pids: findKind("pids"),
};

/** Why a group with such a limit can't be created here; false if it can. */
export function groupsMissing(controller: Controller): string | false {
  const kind = kinds[controller];
  return typeof kind === "string" ? kind : false;
}

/** The created folders; inner ones are removed first. */
const created: string[] = [];
after(() => {
  for (const folder of created.reverse()) rmdirSync(folder);
});

/**
 * Creates a group, optionally inside another one. Returns its folder; a shell joins it by writing to
 * `cgroup.procs`.
 */
export function makeGroup(controller: Controller, name: string, limit: number, inside?: string): string {
  const kind = kinds[controller];
  if (typeof kind === "string") throw new Error(kind);
  const folder = join(inside ?? kind.parent, `holdfast-${name}-${process.pid}`);
  // In version 2 a group enables a controller for its inner groups only on request.
  if (inside && existsSync(join(inside, "cgroup.subtree_control")))
    writeFileSync(join(inside, "cgroup.subtree_control"), `+${controller}`);
  mkdirSync(folder);
  created.push(folder);
  writeFileSync(join(folder, kind.limit), String(limit));
  return folder;
}
