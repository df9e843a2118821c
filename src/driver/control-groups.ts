/**
 * The control groups that this process is in, as folders: where a container's limits stand. `root` stands for "/", so that
 * tests can show it any machine.
 */

import { readFileSync } from "node:fs";
import { join, posix } from "node:path";
import { HoldfastError } from "../errors/index.js";

export interface GroupFolder {
  readonly path: string;
  readonly version: 1 | 2;
}

/**
 * The folders of every group from ours up to the root, for one controller: a limit counts wherever above us it stands. On a
 * mixed machine a controller is under version 1 or 2, never both; a folder may be missing.
 */
export function listGroupFolders(root: string, controller: "memory" | "cpu"): GroupFolder[] {
  const membershipPath = join(root, "proc/self/cgroup");
  const lines = readIfPresent(membershipPath)?.split("\n").filter(Boolean) ?? [];
  return lines.flatMap((line): GroupFolder[] => {
    const match = /^\d+:([^:]*):(\/.*)$/.exec(line);
    if (!match) throw malformed(membershipPath, line, "lines such as 0::/user.slice");
    const [, controllers = "", group = "/"] = match;
    const mount = join(root, "sys/fs/cgroup");
    if (controllers === "")
      return levelsUpFrom(group).map((level) => ({ path: join(mount, level), version: 2 }));
    if (!controllers.split(",").includes(controller)) return [];
    // "cpu,cpuacct" is mounted under that name; the single ones are links, which a container may lack.
    return [...new Set([controller, controllers])].flatMap((name) =>
      levelsUpFrom(group).map((level) => ({ path: join(mount, name, level), version: 1 })),
    );
  });
}

/** In a container the path may name a group outside of what is mounted; its levels are then missing. */
function levelsUpFrom(path: string): string[] {
  const levels = [path];
  for (let level = path; level !== "/"; level = posix.dirname(level)) levels.push(posix.dirname(level));
  return levels;
}

export function malformed(path: string, content: string, expected: string): HoldfastError {
  const message = `${path} should hold ${expected}, and holds ${JSON.stringify(content)}; the machine's limits can't be told. Check that /proc and /sys are the kernel's own.`;
  return new HoldfastError("DRIVER_FAILED", message, { numbers: { path, content } });
}

export function readIfPresent(path: string): string | undefined {
  try {
    return readFileSync(path, "utf8");
  } catch (cause) {
    const reason = (cause as NodeJS.ErrnoException).code ?? "";
    if (["ENOENT", "ENOTDIR", "EACCES"].includes(reason)) return undefined;
    throw new HoldfastError(
      "DRIVER_FAILED",
      `${path} can't be read (${reason}); the machine's limits can't be told.`,
      { cause },
    );
  }
}
