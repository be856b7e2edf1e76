//! The commands of a shell script, with the syntax that the documentation uses: words, quotes, pipes, lists, comments,
//! redirections and here-documents.

/// Returns the commands of a script, each split into words, without `sudo` and assignments before a command.
pub fn commands(script: &str) -> Vec<Vec<String>> {
    let mut reader = Reader { rest: script, commands: vec![Vec::new()], heredoc: None };
    while reader.step() {}
    let mut commands = reader.commands;
    for command in &mut commands {
        let prefix = |word: &String| word == "sudo" || word.split_once('=').is_some_and(|(name, _)| is_name(name));
        while command.first().is_some_and(prefix) {
            command.remove(0);
        }
    }
    commands.retain(|command| !command.is_empty());
    commands
}

fn is_name(word: &str) -> bool {
    !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

struct Reader<'a> {
    rest: &'a str,
    commands: Vec<Vec<String>>,
    /// The delimiter of a here-document that begins on the next line.
    heredoc: Option<String>,
}

impl Reader<'_> {
    /// Parses the next token of the script; false at the end.
    fn step(&mut self) -> bool {
        let Some(first) = self.rest.chars().next() else { return false };
        match first {
            ' ' | '\t' => self.skip(1),
            '\\' if self.rest.starts_with("\\\n") => self.skip(2),
            '#' => self.skip(self.rest.find('\n').unwrap_or(self.rest.len())),
            '\n' => {
                self.skip(1);
                self.commands.push(Vec::new());
                self.skip_heredoc();
            }
            ';' | '&' | '|' | '(' | ')' => {
                self.skip(1);
                self.commands.push(Vec::new());
            }
            '<' | '>' => self.redirect(),
            _ => {
                let word = self.word();
                self.commands.last_mut().expect("a command has begun").push(word);
            }
        }
        true
    }

    fn skip(&mut self, bytes: usize) {
        self.rest = &self.rest[bytes..];
    }

    /// Skips a redirection, such as `> FILE`, `2>/dev/null` or `<<'END'`: neither the word after the operator nor the
    /// number before the operator is an argument.
    fn redirect(&mut self) {
        let operator = self.rest.len() - self.rest.trim_start_matches(['<', '>', '&']).len();
        let is_here = self.rest.starts_with("<<");
        self.skip(operator);
        self.rest = self.rest.trim_start_matches(' ');
        let word = self.word();
        if is_here {
            self.heredoc = Some(word);
        }
        let command = self.commands.last_mut().expect("a command has begun");
        command.pop_if(|word| *word == "2");
    }

    fn skip_heredoc(&mut self) {
        let Some(end) = self.heredoc.take() else { return };
        while !self.rest.is_empty() {
            let (line, rest) = self.rest.split_once('\n').unwrap_or((self.rest, ""));
            self.rest = rest;
            if line == end {
                return;
            }
        }
    }

    /// Reads a word, without its quotes.
    fn word(&mut self) -> String {
        let (mut word, mut quote) = (String::new(), None);
        let mut characters = self.rest.char_indices();
        let end = loop {
            let Some((at, character)) = characters.next() else { break self.rest.len() };
            match (quote, character) {
                (Some(open), close) if open == close => quote = None,
                (Some(_), other) => word.push(other),
                (None, '\'' | '"') => quote = Some(character),
                (None, ' ' | '\t' | '\n' | ';' | '&' | '|' | '(' | ')' | '<' | '>') => break at,
                (None, other) => word.push(other),
            }
        };
        self.skip(end);
        word
    }
}

#[test]
fn commands_are_distinguished() {
    let script = "sudo A=1 one 'a b'\"c;d\" # not this\n(umask 077; two --x=1 > file 2>/dev/null) | three \\\n  end && four\n\
                  cat > f <<'END'\nnot a command; at all\nEND\nfive http://h/?a=1\n";
    let expected = ["one|a bc;d", "umask|077", "two|--x=1", "three|end", "four", "cat", "five|http://h/?a=1"];
    let found: Vec<String> = commands(script).iter().map(|command| command.join("|")).collect();
    assert_eq!(found, expected);
}
