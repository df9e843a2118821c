/** The location of the repository and its files. The tests run compiled, from dist/, so they need this. */

import { existsSync, readdirSync, readFileSync } from "node:fs";
import { dirname, join, relative, sep } from "node:path";
import { fileURLToPath } from "node:url";

export const repositoryRoot = findRoot(dirname(fileURLToPath(import.meta.url)));

function findRoot(folder: string): string {
  if (existsSync(join(folder, "package.json"))) return folder;
  if (dirname(folder) === folder) throw new Error(`No package.json above ${import.meta.url}.`);
  return findRoot(dirname(folder));
}

/** The text of a file, by its path from the root. */
export function readRepositoryFile(path: string): string {
  return readFileSync(join(repositoryRoot, path), "utf8");
}

/**
 * The files below a folder whose names end with `ending`: paths from the root, in order, with forward slashes. Packages that a benchmark
 * installed are not the repository's.
 */
export function filesBelow(folder: string, ending: string): string[] {
  const start = join(repositoryRoot, folder);
  if (!existsSync(start)) return [];
  return readdirSync(start, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile() && entry.name.endsWith(ending))
    .map((entry) => relative(repositoryRoot, join(entry.parentPath, entry.name)).split(sep).join("/"))
    .filter((path) => !path.includes("/node_modules/"))
    .sort();
}
