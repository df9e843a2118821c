/** The colours have enough contrast on both backgrounds, and are distinct for colour-blind users too. */

import assert from "node:assert/strict";
import test from "node:test";
import { readRepositoryFile } from "../../../../test/support/repository.js";
import { assignLooks, inks, lookOf, seriesColours } from "./palette.js";

type Triple = readonly [number, number, number];
type Matrix = readonly [Triple, Triple, Triple];

/** After Machado, Oliveira and Fernandes (2009): how colours look without one of the three kinds of cones. */
const sights: Readonly<Record<string, Matrix>> = {
  all: [
    [1, 0, 0],
    [0, 1, 0],
    [0, 0, 1],
  ],
  protanopia: [
    [0.152286, 1.052583, -0.204868],
    [0.114503, 0.786281, 0.099216],
    [-0.003882, -0.048116, 1.051998],
  ],
  deuteranopia: [
    [0.367322, 0.860646, -0.227968],
    [0.280085, 0.672501, 0.047413],
    [-0.01182, 0.04294, 0.968881],
  ],
  tritanopia: [
    [1.255528, -0.076749, -0.178779],
    [-0.078411, 0.930809, 0.147602],
    [0.004733, 0.691367, 0.3039],
  ],
};

function linear(colour: string): Triple {
  const channel = (at: number): number => {
    const value = Number.parseInt(colour.slice(at, at + 2), 16) / 255;
    return value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
  };
  return [channel(1), channel(3), channel(5)];
}

function product(matrix: Matrix, [x, y, z]: Triple): Triple {
  const row = ([a, b, c]: Triple): number => a * x + b * y + c * z;
  return [row(matrix[0]), row(matrix[1]), row(matrix[2])];
}

/** OKLab, in which a distance of 0.02 is just visible. */
function perceived(colour: string, sight: Matrix): Triple {
  const [r, g, b] = product(sight, linear(colour)).map((value) => Math.min(1, Math.max(0, value)));
  const cones = product(
    [
      [0.4122214708, 0.5363325363, 0.0514459929],
      [0.2119034982, 0.6806995451, 0.1073969566],
      [0.0883024619, 0.2817188376, 0.6299787005],
    ],
    [r!, g!, b!],
  ).map(Math.cbrt);
  return product(
    [
      [0.2104542553, 0.793617785, -0.0040720468],
      [1.9779984951, -2.428592205, 0.4505937099],
      [0.0259040371, 0.7827717662, -0.808675766],
    ],
    [cones[0]!, cones[1]!, cones[2]!],
  );
}

function contrast(first: string, second: string): number {
  const luminance = (colour: string): number => {
    const [r, g, b] = linear(colour);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const [low, high] = [luminance(first), luminance(second)].sort((a, b) => a - b);
  return (high! + 0.05) / (low! + 0.05);
}

test("every colour has a contrast of at least 3 to 1 on both backgrounds", () => {
  for (const colour of seriesColours)
    for (const { ground } of Object.values(inks))
      assert.ok(contrast(colour, ground) >= 3, `${colour} on ${ground}: ${contrast(colour, ground)}`);
});

test("any two colours are distinct, for every kind of colour blindness", () => {
  for (const [sight, matrix] of Object.entries(sights))
    for (const [index, first] of seriesColours.entries())
      for (const second of seriesColours.slice(index + 1)) {
        const [a, b] = [perceived(first, matrix), perceived(second, matrix)];
        const apart = Math.hypot(a[0] - b[0], a[1] - b[1], a[2] - b[2]);
        assert.ok(apart >= 0.07, `${first} and ${second}, ${sight}: ${apart}`);
      }
});

test("red and green of equal lightness are detected as too similar", () => {
  const [a, b] = ["#c0504d", "#6b8e23"].map((colour) => perceived(colour, sights["deuteranopia"]!));
  assert.ok(Math.hypot(a![0] - b![0], a![1] - b![1], a![2] - b![2]) < 0.07);
});

test("after the last colour, the first one is used again with a dashed line", () => {
  assert.deepEqual(lookOf(0), { colour: seriesColours[0], dash: [] });
  assert.deepEqual(lookOf(seriesColours.length), { colour: seriesColours[0], dash: [6, 4] });
});

test("a run keeps its style when others are added", () => {
  assert.deepEqual(assignLooks(["a", "b"]).get("b"), assignLooks(["a", "b", "c"]).get("b"));
  assert.equal(assignLooks(["a", "a"]).size, 1);
});

test("text has a contrast of at least 4.5 to 1 on both backgrounds, muted text too", () => {
  for (const { ground, text, muted, alert } of Object.values(inks))
    for (const ink of [text, muted, alert]) assert.ok(contrast(ink, ground) >= 4.5, `${ink} on ${ground}`);
});

test("the style sheet has the colours that canvases draw with", () => {
  const sheet = readRepositoryFile("src/inspect/page/page.css");
  for (const name of ["ground", "text", "muted", "line", "alert"] as const)
    assert.ok(sheet.includes(`--${name}: light-dark(${inks.light[name]}, ${inks.dark[name]});`), name);
});
