// Looks at a page in a browser without a screen, where there is one: Chromium.
#pragma once

#include <algorithm>
#include <sstream>
#include <string>

#include "tests/support/run_program.h"

namespace ink {

/// A line for the shell that starts the browser, which then opens one address.
inline std::string start_browser(const std::string& name, const std::string& profile,
                                 const std::string& options) {
  return "timeout 60 " + name +
         " --headless=new --no-sandbox --disable-gpu --disable-dev-shm-usage " + options +
         " --user-data-dir=" + profile + " --virtual-time-budget=2000 --dump-dom ";
}

/// The browser's name; empty if there is none that starts.
inline const std::string& browser() {
  static const std::string found = [] {
    const TempFolder folder;
    for (const char* name : {"chromium", "chromium-browser", "google-chrome"})
      if (run_shell("command -v " + std::string(name)).code == 0 &&
          run_shell(start_browser(name, folder.path().string(), "") + "about:blank")
                  .out.find("<html") != std::string::npos)
        return std::string(name);
    return std::string();
  }();
  return found;
}

struct Browsed {
  std::string errors;  // of the page's scripts
  std::string result;  // of `script`
};

/// Opens a page `width` pixels wide and runs `script`, the body of a JavaScript function that
/// returns a text, when the page's own scripts have ended. No frame is drawn and no time passes
/// there, so what a page does when it knows its sizes is done by hand before.
inline Browsed browse(const std::string& page, const std::string& script, int width = 1200,
                      bool dark = false) {
  const TempFolder folder;
  std::string whole = page;
  whole.insert(std::min(page.find("<script>"), page.size()),
               "<script>const later = [];"
               "ResizeObserver = class { constructor(f) { this.f = f; }"
               "                         observe() { later.push(this.f); } };"
               "requestAnimationFrame = f => later.push(f);</script>\n");
  const auto file = folder.write(
      "page.html",
      whole +
          "<script>{let text; while (later.length) later.shift()(); try { text = String((() => {" +
          script +
          "})()); } catch (error) { text = 'failed: ' + error; }\n"
          "const pre = document.body.appendChild(document.createElement('pre'));\n"
          "pre.textContent = 'RESULT<' + text + '>RESULT';}</script>");
  const std::string options = (dark ? "--blink-settings=preferredColorScheme=0 " : "") +
                              ("--window-size=" + std::to_string(width)) +
                              ",2000 --enable-logging=stderr --v=0";
  const Ran ran = run_shell(start_browser(browser(), (folder / "profile").string(), options) +
                            "file://" + file.string());
  Browsed browsed{"", "no result"};
  const std::string begin = "RESULT&lt;", end = "&gt;RESULT";
  const size_t at = ran.out.rfind(begin);
  if (at != std::string::npos)
    browsed.result = ran.out.substr(at + begin.size(), ran.out.rfind(end) - at - begin.size());
  std::istringstream log(ran.err);
  for (std::string line; std::getline(log, line);)
    if (line.find("CONSOLE") != std::string::npos) browsed.errors += line + "\n";
  return browsed;
}

}  // namespace ink
