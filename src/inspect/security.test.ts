/** Rejected requests: other host names, other sites, other files, and many slow clients. */

import assert from "node:assert/strict";
import { readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { hostname } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import fc from "fast-check";
import { effort } from "../../test/support/effort.js";
import { makeFolder } from "../../test/support/folders.js";
import {
  exchange,
  listenTo,
  openSlowClient,
  openTestInspector,
} from "../../test/support/inspector-client.js";
import { writeSampleRun } from "../../test/support/sample-run.js";
import { isLoopback, makeToken } from "../http/index.js";
import { checkToken, makeAccessPolicy } from "./access.js";

const outer = makeFolder();
const secret = "the text of a secret file";
writeFileSync(join(outer, "secret.json"), secret);
writeSampleRun(outer, "private", { steps: 1 });
const root = join(outer, "runs");
writeSampleRun(root, "one", { steps: 50 });
const inspector = await openTestInspector({ root });
const { port, ask } = inspector;

/** All spellings of parent paths that have misled servers. */
const upwards = [
  "..",
  "%2e%2e",
  "%2E.",
  "..%2f",
  "%2e%2e%2f",
  "..%5c",
  "..\\",
  "%252e%252e%252f",
  "..%c0%af",
  "%c0%ae%c0%ae",
  "....//",
  "..;",
  "%00..",
  "%u002e%u002e",
  ".%00.",
  "～",
];

test("no spelling of a parent path leads to a file or a run outside", async () => {
  const targets = ["private", "secret.json", "private/run.json", "etc/passwd"];
  const prefixes = [
    "/",
    "/assets/",
    "/api/runs/",
    "/api/runs/one/",
    "/api/runs/one/export/",
    "/api/runs/one/plans/",
  ];
  const forms = [
    (up: string, target: string) => `${up}/${target}`,
    (up: string, target: string) => `${`${up}/`.repeat(8)}${target}`,
    (up: string, target: string) => `${up}${target}`,
  ];
  const combinations = prefixes.flatMap((prefix) =>
    upwards.flatMap((up) => targets.flatMap((target) => forms.map((form) => `${prefix}${form(up, target)}`))),
  );
  // Each pair of a prefix and a spelling has 12 paths: 4 targets in 3 forms. Every seventh path covers every pair, target and form,
  // because 7 is less than 12 and has no factor in common with it.
  const step = effort({ quick: 7, thorough: 1 });
  for (const path of combinations.filter((_, index) => index % step === 0)) {
    const text = await exchange(
      port,
      `GET ${path} HTTP/1.1\r\nHost: 127.0.0.1:${port}\r\nConnection: close\r\n\r\n`,
    );
    assert.match(text, /^HTTP\/1\.1 40[04] /, path);
    assert.ok(!text.includes(secret) && !text.includes("settings"), path);
  }
});

test("a random address is never answered with a file, only with JSON", async () => {
  const encodedCharacter = fc
    .oneof(fc.integer({ min: 0, max: 0xd7ff }), fc.integer({ min: 0xe000, max: 0x10ffff }))
    .map((code) => encodeURIComponent(String.fromCodePoint(code)));
  const segment = fc.oneof(
    fc.constantFrom(
      ...upwards,
      "api",
      "runs",
      "one",
      "private",
      "secret.json",
      "export",
      "plans",
      "assets",
      "",
    ),
    // Not fc.webSegment(), which takes two seconds to list the characters of Unicode.
    fc.string({ unit: fc.oneof(fc.constantFrom(..."aZ0-._~!$&'()*+,;=:@"), encodedCharacter) }),
  );
  await fc.assert(
    fc.asyncProperty(fc.array(segment, { minLength: 1, maxLength: 7 }), async (segments) => {
      const path = `/${segments.join("/").replaceAll(/[^\u0021-\u007e]/g, "")}`;
      const { status, text, headers } = await ask(path);
      assert.ok([200, 303, 400, 404].includes(status), `${path}: ${status}`);
      assert.ok(!text.includes(secret), path);
      if (path !== "/" && path !== "/?") assert.match(headers["content-type"] ?? "", /json|csv|octet/, path);
    }),
    { numRuns: effort({ quick: 60, thorough: 300 }) },
  );
});

test("a request with another host name is rejected, against DNS rebinding", async () => {
  for (const host of [
    "evil.example",
    `evil.example:${port}`,
    "127.0.0.1",
    `127.0.0.1:${port + 1}`,
    `127.0.0.1.evil.example:${port}`,
  ]) {
    const { status, text } = await ask("/api/runs", { Host: host });
    assert.equal(status, 403, host);
    assert.ok(!text.includes("one"), host);
  }
  for (const host of [`127.0.0.1:${port}`, `localhost:${port}`, `LOCALHOST:${port}`])
    assert.equal((await ask("/api/runs", { Host: host })).status, 200, host);
  assert.match(await exchange(port, "GET /api/runs HTTP/1.0\r\n\r\n"), /^HTTP\/1\.1 403 /);
  const empty = "GET /api/runs HTTP/1.1\r\nHost:\r\nConnection: close\r\n\r\n";
  assert.match(await exchange(port, empty), /^HTTP\/1\.1 403 /);
  const ownHost = `127.0.0.1:${port}`;
  for (const [first, second] of [
    ["evil.example", ownHost],
    [ownHost, "evil.example"],
    [ownHost, ownHost],
  ]) {
    const twice = `GET /api/runs HTTP/1.1\r\nHost: ${first}\r\nhost: ${second}\r\nConnection: close\r\n\r\n`;
    assert.match(await exchange(port, twice), /^HTTP\/1\.1 400 [\s\S]*several Host headers/);
  }
});

test("a request of another site's page is rejected, and no header allows it to read the answer", async () => {
  for (const origin of [
    "http://evil.example",
    "null",
    `https://127.0.0.1:${port}`,
    `http://127.0.0.1:${port + 1}`,
  ]) {
    const { status, headers } = await ask("/api/runs", { Origin: origin });
    assert.equal(status, 403, origin);
    assert.equal(headers["access-control-allow-origin"], undefined);
  }
  assert.equal((await ask("/api/runs", { Origin: `http://127.0.0.1:${port}` })).status, 200);
  const foreign = { "Sec-Fetch-Site": "cross-site" };
  assert.equal((await ask("/api/runs", { ...foreign, "Sec-Fetch-Mode": "no-cors" })).status, 403);
  assert.equal((await ask("/", { ...foreign, "Sec-Fetch-Mode": "navigate" })).status, 200);
  assert.equal((await ask("/api/runs", { "Sec-Fetch-Site": "same-origin" })).status, 200);
});

test("only GET and HEAD are answered, and no request may have a body", async () => {
  for (const method of ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "PROPFIND"]) {
    const { status, headers } = await ask("/api/runs", {}, method);
    assert.deepEqual([status, headers.allow], [405, "GET, HEAD"], method);
  }
  const head = `Host: 127.0.0.1:${port}\r\nConnection: close\r\n`;
  const withLength = await exchange(port, `GET /api/runs HTTP/1.1\r\n${head}Content-Length: 5\r\n\r\nhello`);
  assert.match(withLength, /^HTTP\/1\.1 413 /);
  const chunked = await exchange(
    port,
    `GET /api/runs HTTP/1.1\r\n${head}Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n`,
  );
  assert.match(chunked, /^HTTP\/1\.1 413 /);
  const both = `GET / HTTP/1.1\r\n${head}Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n`;
  assert.match(await exchange(port, both), /^HTTP\/1\.1 4\d\d /);
});

test("long addresses, large headers and invalid HTTP are rejected in one line of JSON", async () => {
  const long = await ask(`/api/runs?${"x".repeat(5000)}`);
  assert.equal(long.status, 414);
  const requestWith = (line: string, header: string): string =>
    `GET ${line} HTTP/1.1\r\nHost: 127.0.0.1:${port}\r\n${header}\r\n\r\n`;
  for (const [bytes, status] of [
    [requestWith("/", `X-Large: ${"x".repeat(20_000)}`), 431],
    [requestWith(`/${"x".repeat(20_000)}`, "X: y"), 431],
    [requestWith("/", Array.from({ length: 3000 }, (_, index) => `X-${index}: y`).join("\r\n")), 431],
    ["\u0016\u0003\u0001\u0002\u0000 this is no HTTP\r\n\r\n", 400],
    [requestWith("http://evil.example/", "X: y"), 400],
  ] as const) {
    const text = await exchange(port, `${bytes}`.replace("X: y", "X: y\r\nConnection: close"));
    assert.match(text, new RegExp(`^HTTP/1\\.1 ${status} `));
    assert.match(text, /\r\n\r\n\{"error":"[^\n]+"\}$/);
  }
});

test("an address that others can reach needs a token, which is random and part of the printed address", async () => {
  const open = await openTestInspector({ root, host: "0.0.0.0" });
  const token = new URL(open.url).searchParams.get("token") ?? "";
  assert.match(token, /^[\w-]{32}$/);
  for (const path of ["/", "/api/runs", "/assets/x.js", `/api/runs?token=${token}x`, "/api/runs?token="]) {
    const { status, text } = await open.ask(path);
    assert.equal(status, 401, path);
    assert.match(text, /token is required/);
  }
  assert.equal((await open.ask("/api/runs", { Authorization: `Bearer ${token}` })).status, 200);
  assert.equal((await open.ask("/api/runs", { Authorization: `Bearer ${token.slice(1)}` })).status, 401);
  assert.equal((await open.ask("/api/runs", { Cookie: `holdfast-inspect-${open.port}=wrong` })).status, 401);
  assert.equal((await open.ask("/api/runs", { Host: "evil.example" })).status, 403);
});

test("the token in the address becomes a cookie that scripts and other sites don't get, and leaves the address", async () => {
  const guarded = await openTestInspector({ root, token: "a-token-of-ours" });
  const { status, headers } = await guarded.ask("/?token=a-token-of-ours");
  assert.deepEqual([status, headers.location], [303, "/"]);
  const [cookie = ""] = headers["set-cookie"] ?? [];
  assert.match(cookie, /^holdfast-inspect-\d+=a-token-of-ours; HttpOnly; SameSite=Strict; Path=\/$/);
  const withCookie = { Cookie: `other=1; ${cookie.split(";")[0]}` };
  assert.equal((await guarded.ask("/", withCookie)).status, 200);
  assert.equal((await guarded.ask("/api/runs", withCookie)).status, 200);
});

test("a server on all addresses accepts this machine's names and addresses; a server on one address accepts only that one", () => {
  const { hosts } = makeAccessPolicy("0.0.0.0", 8080, makeToken());
  for (const name of [hostname().toLowerCase(), "localhost", "127.0.0.1", "[::1]"])
    assert.ok(hosts.has(`${name}:8080`), name);
  assert.deepEqual([...makeAccessPolicy("192.0.2.7", 8080, undefined).hosts], ["192.0.2.7:8080"]);
  assert.deepEqual([...makeAccessPolicy("192.0.2.7", 80, undefined).hosts], ["192.0.2.7:80", "192.0.2.7"]);
  assert.deepEqual(
    ["127.0.0.1", "127.9.9.9", "::1", "localhost", "0.0.0.0", "192.0.2.7", "127.evil.example"].map(
      isLoopback,
    ),
    [true, true, true, true, false, false, false],
  );
});

test("any other text is rejected as a token", () => {
  const gate = makeAccessPolicy("127.0.0.1", 80, "the-right-token");
  fc.assert(
    fc.property(fc.string(), (text) => {
      const query = new URLSearchParams({ token: text });
      const { isValid } = checkToken(gate, { headers: {} } as Parameters<typeof checkToken>[1], query);
      assert.equal(isValid, text === "the-right-token");
    }),
  );
});

for (const count of effort({ quick: [100], thorough: [200, 600] })) {
  test(`${count} clients that never end their requests do not block a valid request`, async () => {
    const { port: crowded, ask: askCrowded } = await openTestInspector({ root });
    const slow = await Promise.all(Array.from({ length: count }, () => openSlowClient(crowded)));
    after(() => {
      for (const socket of slow) socket.destroy();
    });
    for (let turn = 0; turn < 5; turn++) assert.equal((await askCrowded("/api/runs/one/steps")).status, 200);
  });
}

test("a client that takes too long over its request is closed", async () => {
  const { port: hasty } = await openTestInspector({ root, headerTimeoutMs: 100 });
  const slow = await openSlowClient(hasty);
  await new Promise((resolve) => slow.resume().on("close", resolve));
});

test("the number of listeners is limited; when one leaves, another may listen", async () => {
  const { port: busy } = await openTestInspector({ root, maxListeners: 3, pollMs: 5 });
  const path = "/api/runs/one/live";
  const listeners = await Promise.all([1, 2, 3].map(() => listenTo(busy, path)));
  assert.deepEqual(
    listeners.map(({ status }) => status),
    [200, 200, 200],
  );
  assert.equal((await listenTo(busy, path)).status, 503);
  listeners[0]?.close();
  // The server notices the closed connection a moment later.
  for (let status = 0; status !== 200; ) ({ status } = await listenTo(busy, path));
});

test("closing ends listeners and pending requests", async () => {
  const { port: closing, close } = await openTestInspector({ root });
  const slow = await openSlowClient(closing);
  const listener = await listenTo(closing, "/api/runs/one/live");
  const ends = Promise.all(
    [slow, listener.response].map((end) => new Promise((resolve) => end.on("close", resolve))),
  );
  await close();
  await ends;
});

test("reading a folder changes nothing in it", async () => {
  const path = join(root, "one");
  const state = () =>
    readdirSync(path, { recursive: true, encoding: "utf8" })
      .sort()
      .map((name) => {
        const file = join(path, name);
        const { mtimeMs } = statSync(file);
        return [name, mtimeMs, statSync(file).isFile() ? readFileSync(file, "base64") : ""];
      });
  const before = JSON.stringify(state());
  for (const rest of [
    "",
    "/steps",
    "/memory",
    "/phases",
    "/plans/0",
    "/export/steps.csv",
    "/export/trace.json",
  ])
    assert.equal((await ask(`/api/runs/one${rest}`)).status, 200, rest);
  assert.equal(JSON.stringify(state()), before);
});
