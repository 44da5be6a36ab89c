// Calls functions of a module for the tests: JSON [[name, args], ...] in, [result or {error}] out.
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const functions = await import(pathToFileURL(process.argv[2]));
const calls = JSON.parse(readFileSync(0, "utf8"));
const results = calls.map(([name, args]) => {
  try {
    return functions[name](...args);
  } catch (error) {
    return { error: error.message };
  }
});
process.stdout.write(JSON.stringify(results));
