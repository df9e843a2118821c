/** Lists the existing folders that may contain CUDA libraries: of drivers, toolkits and pip packages. */

import { existsSync, readdirSync, realpathSync } from "node:fs";
import { homedir } from "node:os";
import { join, resolve } from "node:path";

export interface FolderSearch {
  readonly environment?: Readonly<Record<string, string | undefined>>;
  /** Prefix of every path, for tests with another file system. */
  readonly root?: string;
  readonly architecture?: string;
}

/** The folder of the setting; undefined for "auto". */
export function configuredFolder({ environment = process.env }: FolderSearch): string | undefined {
  const { HOLDFAST_CUDA_PATH: folder } = environment;
  return folder && folder !== "auto" ? folder : undefined;
}

/** The folders that the setting names. */
export function listConfiguredFolders(search: FolderSearch): string[] {
  const folder = configuredFolder(search);
  if (folder === undefined) return [];
  const { expand, inside } = lookFrom(search);
  return distinct([...expand(resolve(folder)), ...inside(resolve(folder))]);
}

/** The default install folders. `pipFolders` are the folders below site-packages that may contain the library. */
export function listDefaultFolders(search: FolderSearch, pipFolders: readonly string[]): string[] {
  const { expand, named, inside, triplet, home } = lookFrom(search);
  const toolkits = [
    ...named("CUDA_HOME", "CUDA_PATH"),
    "/usr/local/cuda",
    "/usr/local/cuda-*",
    "/opt/cuda",
    ...named("CONDA_PREFIX"),
  ];
  const systemFolders = [
    `/usr/lib/${triplet}`,
    `/usr/lib/${triplet}/nvidia/current`,
    "/usr/lib64",
    "/usr/lib/wsl/lib",
  ];
  const pythons = [
    ...named("VIRTUAL_ENV", "CONDA_PREFIX"),
    join(home, ".local"),
    "/usr/local",
    "/usr",
    "/opt/*",
    "/opt/*/.venv",
  ];
  const sites = pythons.flatMap((python) =>
    ["site-packages", "dist-packages"].map((name) => join(python, "lib/python3*", name)),
  );
  const pipMatches = sites.flatMap((site) => pipFolders.flatMap((folder) => expand(join(site, folder))));
  return distinct([...toolkits.flatMap(inside), ...systemFolders.flatMap(expand), ...pipMatches]);
}

function lookFrom({ environment = process.env, root = "/", architecture = process.arch }: FolderSearch) {
  const { targets, triplet } = architectureNames(architecture);
  const libraryFolders = ["lib64", "lib", ...targets.map((target) => `targets/${target}/lib`)];
  const expand = (pattern: string) => expandStars(root, pattern);
  return {
    triplet,
    home: environment["HOME"] || homedir(),
    expand,
    /** The library folders of a toolkit. */
    inside: (toolkit: string) => libraryFolders.flatMap((folder) => expand(join(toolkit, folder))),
    /** The values of the variables that are set. */
    named: (...variables: string[]) => variables.flatMap((variable) => environment[variable] || []),
  };
}

/** NVIDIA's and Debian's names of a processor architecture in folder names. */
function architectureNames(architecture: string): {
  readonly targets: readonly string[];
  readonly triplet: string;
} {
  return architecture === "arm64"
    ? { targets: ["sbsa-linux", "aarch64-linux"], triplet: "aarch64-linux-gnu" }
    : { targets: ["x86_64-linux"], triplet: "x86_64-linux-gnu" };
}

/** Expands a path with stars; a star matches within a name. The newest version comes first. */
function expandStars(root: string, pattern: string): string[] {
  let folders = [root];
  for (const segment of pattern.split("/").filter((name) => name !== "")) {
    folders = folders.flatMap((folder) => matching(folder, segment).map((name) => join(folder, name)));
  }
  return folders.filter((folder) => existsSync(folder));
}

function matching(folder: string, pattern: string): string[] {
  if (!pattern.includes("*")) return [pattern];
  const [start = "", end = ""] = pattern.split("*");
  try {
    return readdirSync(folder)
      .filter((name) => name.startsWith(start) && name.endsWith(end))
      .sort(newestFirst);
  } catch {
    return [];
  }
}

/** Compares by numbers: python3.13 before python3.9, cuda-13.0 before cuda-12.9. */
function newestFirst(left: string, right: string): number {
  const [numbers, others] = [left, right].map((name) => name.match(/\d+/g)?.map(Number) ?? []) as [
    number[],
    number[],
  ];
  for (const [index, number] of numbers.entries()) {
    const difference = (others[index] ?? -1) - number;
    if (difference !== 0) return difference;
  }
  return others.length - numbers.length;
}

/** Removes duplicates by real path and keeps the first name: toolkits are full of symlinks. */
function distinct(folders: readonly string[]): string[] {
  const byRealPath = new Map<string, string>();
  for (const folder of folders) {
    const realPath = realpathSync(folder);
    if (!byRealPath.has(realPath)) byRealPath.set(realPath, folder);
  }
  return [...byRealPath.values()];
}
