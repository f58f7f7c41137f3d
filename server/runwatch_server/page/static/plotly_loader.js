// Plotly, from the installed package, when the first chart comes into sight.
//
// At load it puts the stylesheet of its map library into the page, which our policy (no inline
// style) forbids, and the browser would report. We have no maps: while the script runs, a <style>
// it makes is a <template> instead, whose text is nobody's style. All else of Plotly's styles goes
// through the CSSOM, but for its own few rules, which are in charts.css (base.html links it under
// the id and class by which Plotly is told so).

let loaded = null;

export class MissingLibraryError extends Error {
  message = "The charts' library could not be loaded.";
}

export function loadPlotly() {
  loaded ??= new Promise((resolve, reject) => {
    const make = document.createElement;
    document.createElement = function createElement(name, ...rest) {
      return make.call(document, name === "style" ? "template" : name, ...rest);
    };
    const done = () => { document.createElement = make; };
    const script = make.call(document, "script");
    script.src = document.querySelector("meta[name=plotly]").content;
    script.onload = () => { done(); resolve(window.Plotly); };
    script.onerror = () => { done(); loaded = null; reject(new MissingLibraryError()); };
    document.head.append(script);
  });
  return loaded;
}
