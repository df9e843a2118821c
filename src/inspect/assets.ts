/**
 * The page's files, read once at the start. An address is looked up in a table and never becomes a path. The policy allows the
 * inline scripts of the page, such as its import map, by their digests; it allows no other inline script.
 */

import { createHash } from "node:crypto";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { extname, join, relative, sep } from "node:path";
import { withFileError } from "../data/index.js";
import { packagePath } from "../files/index.js";

export interface Asset {
  readonly type: string;
  readonly bytes: Uint8Array;
  readonly etag: string;
}

export interface Page {
  /** The page; undefined if it was not built. */
  readonly index: Asset | undefined;
  readonly policy: string;
  /** By URL path: /assets/… */
  readonly assets: ReadonlyMap<string, Asset>;
}

/** Files of other kinds are not served. */
const types: Readonly<Record<string, string>> = {
  ".html": "text/html; charset=utf-8",
  ".js": "text/javascript; charset=utf-8",
  ".mjs": "text/javascript; charset=utf-8",
  ".css": "text/css; charset=utf-8",
  ".json": "application/json; charset=utf-8",
  ".svg": "image/svg+xml",
  ".png": "image/png",
  ".ico": "image/x-icon",
  ".woff2": "font/woff2",
};

/** Reads a built page; default: the package's. */
export function readPage(folder: string = packagePath("dist/page")): Page {
  const files = withFileError(`${folder} can't be read`, folder, () =>
    existsSync(folder) ? readdirSync(folder, { recursive: true, withFileTypes: true }) : [],
  );
  const assets = new Map<string, Asset>();
  let index: Asset | undefined;
  for (const file of files) {
    const type = types[extname(file.name)];
    if (!file.isFile() || type === undefined) continue;
    const path = join(file.parentPath, file.name);
    const bytes = withFileError(`${path} can't be read`, path, () => readFileSync(path));
    const asset = makeAsset(type, bytes);
    const name = relative(folder, path).split(sep).join("/");
    if (name === "index.html") index = asset;
    else assets.set(`/assets/${name}`, asset);
  }
  const scripts = index ? inlineScripts(Buffer.from(index.bytes).toString("utf8")) : [];
  return { index, assets, policy: policyFor(scripts) };
}

function makeAsset(type: string, bytes: Uint8Array): Asset {
  return { type, bytes, etag: `"${createHash("sha256").update(bytes).digest("base64url")}"` };
}

/** The inline scripts of the page. */
function inlineScripts(html: string): string[] {
  return [...html.matchAll(/<script\b([^>]*)>([\s\S]*?)<\/script>/gi)]
    .filter(([, attributes = ""]) => !/\bsrc\s*=/i.test(attributes))
    .map(([, , text = ""]) => text);
}

export function policyFor(scripts: readonly string[]): string {
  const digests = scripts.map((text) => `'sha256-${createHash("sha256").update(text).digest("base64")}'`);
  return [
    "default-src 'none'",
    ["script-src 'self'", ...digests].join(" "),
    "style-src 'self'",
    "img-src 'self' data: blob:",
    "font-src 'self'",
    "connect-src 'self'",
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
  ].join("; ");
}
