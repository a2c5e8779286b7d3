// Restate's service: the same work as work.py, as steps of a Restate handler.
//
//     node restate_service.mjs INSTALLED FILES PORT
import { createRequire } from "node:module";
import { constants } from "node:fs";
import { access, open, readFile, rename } from "node:fs/promises";
import { setTimeout } from "node:timers/promises";

const [, , installed, files, port] = process.argv;
const restate = createRequire(`${installed}/package.json`)("@restatedev/restate-sdk");

const CONTENT = "The quick brown fox jumps over the lazy dog, durably and exactly once.\n";
const FILES = 1024;

const steps = {
  read: () => readFile(`${files}/read.txt`, "utf8"),
  write: async (number) => {
    const path = `${files}/w${number % FILES}.txt`;
    const next = `${path}.${number}.new`;
    const file = await open(next, "w");
    await file.writeFile(CONTENT);
    await file.sync();
    await file.close();
    await rename(next, path);
    const directory = await open(files, constants.O_RDONLY | constants.O_DIRECTORY);
    await directory.sync();
    await directory.close();
    return CONTENT.length;
  },
};

const isThere = (path) => access(path).then(() => true, () => false);

async function act(step) {
  const file = await open(`${files}/effects`, "a");
  await file.write(`${step}\n`);
  await file.sync();
  await file.close();
  for (let turn = 0; turn < 2400 && (await isThere(`${files}/hold`)); turn += 1) await setTimeout(50);
  return "done";
}

const compare = restate.service({
  name: "Compare",
  handlers: {
    take: async (ctx, { act, number, count }) => {
      let last;
      for (let turn = 0; turn < count; turn += 1) {
        last = await ctx.run("take", () => steps[act](number + turn));
      }
      return last;
    },
    act: async (ctx, { step }) => ctx.run("act", () => act(step)),
  },
});

restate.serve({ services: [compare], port: Number(port) });
