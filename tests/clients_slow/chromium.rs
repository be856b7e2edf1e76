//! A headless Chromium, controlled by the DevTools protocol over pipes: reads a page and its errors, and presses keys.
//! Only Chromium must be installed.

use std::cell::{Cell, RefCell};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use base64::Engine;
use serde_json::{Value, json};

use super::programs::{find, program};
use crate::harness::Folder;

/// Timeout of a wait for Chromium, which runs many processes, perhaps on one busy core.
const BROWSER_TIMEOUT: Duration = Duration::from_secs(60);

/// Script that starts Chromium. Chromium reads DevTools messages from descriptor 3 and writes them to descriptor 4, so
/// the script duplicates its standard input and output there.
const START: &str = r#"exec timeout -k 2 240 "$@" 3<&0 4>&1 </dev/null >/dev/null 2>/dev/null"#;

/// Options of every headless browser: no background requests, and TCP only.
pub const OPTIONS: [&str; 9] = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-dev-shm-usage",
    "--disable-sync",
];

/// One browser at a time: several browsers that share the CPUs may exceed [`BROWSER_TIMEOUT`].
static BROWSER_LOCK: Mutex<()> = Mutex::new(());

/// A browser with one page.
pub struct Chromium {
    _lock: MutexGuard<'static, ()>,
    child: Child,
    to: RefCell<ChildStdin>,
    from: Receiver<Value>,
    calls: Cell<u64>,
    page: String,
    errors: RefCell<Vec<String>>,
    _folder: Folder,
}

impl Chromium {
    /// Starts a browser with an empty page and these additional arguments.
    pub fn start(more: &[&str]) -> Self {
        let lock = BROWSER_LOCK.lock().unwrap_or_else(PoisonError::into_inner);
        let folder = Folder::new();
        let mut command = program("sh", &folder);
        command.args(["-c", START, "sh"]).arg(find("chromium").expect("chromium is there")).args(OPTIONS).args(more);
        command.arg("--remote-debugging-pipe");
        command.arg(format!("--user-data-dir={}", folder.0.join("data").display())).arg("about:blank");
        let (child, to, from) = spawn(&mut command);
        let (calls, errors) = (Cell::new(0), RefCell::default());
        let (to, page) = (RefCell::new(to), String::new());
        let mut browser = Self { _lock: lock, child, to, from, calls, page, errors, _folder: folder };
        let target = browser.call("Target.createTarget", json!({ "url": "about:blank" }));
        let attached =
            browser.call("Target.attachToTarget", json!({ "targetId": target["targetId"], "flatten": true }));
        browser.page = attached["sessionId"].as_str().expect("a session").to_owned();
        for domain in ["Page", "Runtime", "Log"] {
            browser.call(&format!("{domain}.enable"), json!({}));
        }
        browser
    }

    /// Loads the page at `url`. Fails if the page cannot be loaded.
    pub fn navigate(&self, url: &str) {
        let answer = self.call("Page.navigate", json!({ "url": url }));
        assert!(answer["errorText"].is_null(), "{url}: {answer}");
    }

    /// Returns the value of an expression in the page; awaits a promise. Fails if the expression throws.
    pub fn evaluate(&self, expression: &str) -> Value {
        let params = json!({ "expression": expression, "returnByValue": true, "awaitPromise": true });
        let answer = self.call("Runtime.evaluate", params);
        assert!(answer["exceptionDetails"].is_null(), "{expression}: {answer:#}");
        answer["result"]["value"].clone()
    }

    /// Returns the text of an element, as rendered; empty if no element matches `selector`.
    pub fn text(&self, selector: &str) -> String {
        let found = self.evaluate(&format!("document.querySelector({selector:?})?.innerText ?? ''"));
        found.as_str().expect("a text").to_owned()
    }

    /// Waits until an expression is true; an expression that throws counts as false.
    pub fn wait_until(&self, expression: &str) {
        let tried = format!("(() => {{ try {{ return Boolean({expression}) }} catch {{ return false }} }})()");
        let deadline = Instant::now() + BROWSER_TIMEOUT;
        while self.evaluate(&tried) != true {
            assert!(Instant::now() < deadline, "{expression} is never true; the page: {}", self.text("body"));
            std::thread::park_timeout(Duration::from_millis(20));
        }
    }

    /// Presses a key: a letter, or `Enter`, `Escape`, ...
    pub fn press(&self, key: &str) {
        let (code, text) = match key {
            "Enter" => (13, "\r"),
            "Escape" => (27, ""),
            "ArrowDown" => (40, ""),
            letter => (0, letter),
        };
        let key = json!({ "key": key, "windowsVirtualKeyCode": code, "text": text });
        for (kind, text) in [("keyDown", text), ("keyUp", "")] {
            let mut event = key.clone();
            (event["type"], event["text"]) = (kind.into(), text.into());
            self.call("Input.dispatchKeyEvent", event);
        }
    }

    /// Inserts `text` into the element that has the focus.
    pub fn insert_text(&self, text: &str) {
        self.call("Input.insertText", json!({ "text": text }));
    }

    /// Sets the size of the viewport, in CSS pixels.
    pub fn set_viewport(&self, width: u32, height: u32) {
        let size = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500 });
        self.call("Emulation.setDeviceMetricsOverride", size);
    }

    /// Sets the colour scheme of the system to `light` or `dark`.
    pub fn set_colour_scheme(&self, word: &str) {
        let feature = json!({ "name": "prefers-color-scheme", "value": word });
        self.call("Emulation.setEmulatedMedia", json!({ "features": [feature] }));
    }

    /// Saves a screenshot as `NAME.png` in the folder that `EKIDEN_TEST_PICTURES` names, where it is set.
    pub fn save_screenshot(&self, name: &str) {
        let Some(folder) = std::env::var_os("EKIDEN_TEST_PICTURES") else { return };
        let shot = self.call("Page.captureScreenshot", json!({ "format": "png" }));
        let data = shot["data"].as_str().expect("a picture");
        let bytes = base64::engine::general_purpose::STANDARD.decode(data).expect("base64");
        std::fs::write(std::path::Path::new(&folder).join(format!("{name}.png")), bytes).expect("a file");
    }

    /// Returns the errors since the last call: errors and warnings in the console, exceptions, and resources that could
    /// not be loaded.
    pub fn take_errors(&self) -> Vec<String> {
        // Events arrive in order: this answer follows all earlier events.
        self.evaluate("0");
        self.errors.take()
    }

    fn call(&self, method: &str, params: Value) -> Value {
        let number = self.calls.get() + 1;
        self.calls.set(number);
        let mut message = json!({ "id": number, "method": method, "params": params });
        if !self.page.is_empty() {
            message["sessionId"] = self.page.as_str().into();
        }
        self.to.borrow_mut().write_all(format!("{message}\0").as_bytes()).expect("Chromium reads the pipe");
        let deadline = Instant::now() + BROWSER_TIMEOUT;
        loop {
            match self.from.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(answer) if answer["id"] == number => {
                    assert!(answer["error"].is_null(), "{method}: {answer:#}");
                    return answer["result"].clone();
                }
                Ok(event) => self.errors.borrow_mut().extend(page_error(&event)),
                Err(RecvTimeoutError::Timeout) => panic!("no answer to {method}"),
                Err(RecvTimeoutError::Disconnected) => panic!("Chromium has ended"),
            }
        }
    }
}

fn spawn(command: &mut Command) -> (Child, ChildStdin, Receiver<Value>) {
    let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = piped.spawn().expect("Chromium runs");
    let (to, out) = (child.stdin.take().expect("piped"), child.stdout.take().expect("piped"));
    let (sender, from) = channel();
    std::thread::spawn(move || {
        for message in BufReader::new(out).split(0).map_while(Result::ok) {
            let message = serde_json::from_slice(&message).expect("JSON");
            if sender.send(message).is_err() {
                return;
            }
        }
    });
    (child, to, from)
}

fn page_error(event: &Value) -> Option<String> {
    let params = &event["params"];
    match event["method"].as_str()? {
        "Runtime.consoleAPICalled" if params["type"] == "error" || params["type"] == "warning" => {
            Some(params["args"].to_string())
        }
        "Runtime.exceptionThrown" => Some(params["exceptionDetails"].to_string()),
        "Log.entryAdded" if params["entry"]["level"] == "error" => Some(params["entry"].to_string()),
        _ => None,
    }
}

impl Drop for Chromium {
    fn drop(&mut self) {
        // timeout(1) forwards the signal to all processes of Chromium.
        let _ = Command::new("kill").arg(self.child.id().to_string()).status();
        let _ = self.child.wait();
    }
}
