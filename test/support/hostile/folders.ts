/** Folders of models with some files replaced. */

import { mkdirSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { makeFolder } from "../folders.js";
import { type FolderFiles, makeModelFolders, writeFolder } from "./model-folder.js";
import { joinSafetensors, splitSafetensors } from "./mutate-json.js";

export const root = makeFolder();
const { whole, sharded } = makeModelFolders();

let count = 0;

function folderWith(files: FolderFiles, replaced: Readonly<Record<string, string | Uint8Array>>): string {
  const folder = join(root, String(count++));
  writeFolder(folder, files);
  for (const [path, content] of Object.entries(replaced)) {
    rmSync(join(folder, path), { force: true });
    mkdirSync(dirname(join(folder, path)), { recursive: true });
    writeFileSync(join(folder, path), content);
  }
  return folder;
}

export const textOf = (path: string): string =>
  new TextDecoder().decode(whole.get(path) ?? sharded.get(path));
export const jsonOf = (path: string) => JSON.parse(textOf(path)) as Record<string, unknown>;

/** A folder with a file that has another content. */
export const withFile = (path: string, content: string | Uint8Array): string =>
  folderWith(whole, { [path]: content });

/** A folder with other fields in a JSON file. */
export const withFields = (path: string, fields: object): string =>
  withFile(path, JSON.stringify({ ...jsonOf(path), ...fields }));

export const weightsFile = "model.safetensors";
export const { header, data } = splitSafetensors(whole.get(weightsFile) as Uint8Array);

/** A folder whose weights have another header. `length`: the length that the file states. */
export const withHeader = (changed: object | string, length?: bigint): string =>
  withFile(
    weightsFile,
    joinSafetensors(typeof changed === "string" ? changed : JSON.stringify(changed), data, length),
  );

export const indexFile = "model.safetensors.index.json";
export const shardOf = jsonOf(indexFile)["weight_map"] as Readonly<Record<string, string>>;

/** A folder of shards whose index has other shards, or another text. */
export const withIndex = (changed: object | string): string =>
  folderWith(sharded, {
    [indexFile]: typeof changed === "string" ? changed : JSON.stringify({ weight_map: changed }),
  });
