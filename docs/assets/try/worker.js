// Python with turingas, in a thread of its own: the page stays alive meanwhile, and ends what takes too long.
import { loadPyodide } from "./pyodide/pyodide.mjs";

const FOLDER = "/turingas";
let printed = []; // by inline Python

async function load() {
  const hear = { stdout: (line) => printed.push(line), stderr: (line) => printed.push(line) };
  const [python, files] = await Promise.all([
    loadPyodide({ indexURL: new URL("pyodide/", import.meta.url).href, ...hear }),
    fetch(new URL("turingas.zip", import.meta.url)).then((found) => found.arrayBuffer()),
  ]);
  python.unpackArchive(files, "zip", { extractDir: FOLDER });
  python.runPython(`import sys; sys.path.insert(0, "${FOLDER}")`);
  return [python, python.pyimport("playground")];
}

const loaded = load();
loaded.then(
  ([python, playground]) => postMessage({ ready: { python: python.version, ...JSON.parse(playground.about()) } }),
  (error) => postMessage({ broken: String(error) }),
);

onmessage = async ({ data: { name, values } }) => {
  const [python, playground] = await loaded;
  printed = [];
  try {
    const given = values.map((value) => (value instanceof Uint8Array ? python.toPy(value) : value));
    postMessage({ found: JSON.parse(playground[name](...given)), printed });
  } catch (error) {
    postMessage({ failed: String(error) });
  }
};
