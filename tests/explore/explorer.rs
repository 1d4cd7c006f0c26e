//! Breadth-first search through all that can happen in a small world.
//!
//! A state is reached by playing its moves from the start, since the types that are explored cannot be copied (a
//! running call is a witness, a run is full of futures). That is also why this is not `stateright`: its state would be
//! a path, and what is left of it then is the hundred lines below.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fmt::Debug;
use std::rc::Rc;

/// What can be explored: the real types, and what surrounds them.
pub(crate) trait World {
    type Move: Debug + Clone;

    /// What can happen next. The world is over if there is nothing, and [`is_over`](Self::is_over) says so.
    fn moves(&self) -> Vec<Self::Move>;

    /// Lets it happen.
    ///
    /// # Errors
    /// The property that does not hold any more, of those that are about what happens.
    fn make(&mut self, next: &Self::Move) -> Result<(), String>;

    /// Whether all is right here.
    ///
    /// # Errors
    /// The property that does not hold.
    fn check(&self) -> Result<(), String>;

    /// All that what can happen from here on depends on: of two worlds with the same state one is explored.
    fn state(&self) -> String;

    /// What is the case here, of what should be somewhere.
    fn marks(&self) -> Vec<String>;

    fn is_over(&self) -> bool;
}

/// A property that holds, or what does not.
pub(crate) fn ensure(holds: bool, otherwise: &str) -> Result<(), String> {
    if holds { Ok(()) } else { Err(otherwise.to_owned()) }
}

/// What was found.
#[derive(Debug, Default)]
pub(crate) struct Report {
    pub(crate) states: usize,
    pub(crate) edges: usize,
    /// The moves of the longest of the shortest paths.
    pub(crate) depth: usize,
    /// After how many moves each mark was seen.
    pub(crate) marks: BTreeMap<String, usize>,
    /// The moves to a state that leads back to itself, if there is one.
    cycle: Option<String>,
}

struct Node<W: World> {
    /// The state it was first reached from, and the move.
    from: Option<(usize, W::Move)>,
    /// The world that got there, for one of the moves from here.
    world: Option<W>,
    depth: usize,
    state: Rc<str>,
    next: Vec<usize>,
}

struct Explorer<'a, W: World> {
    start: &'a dyn Fn() -> W,
    nodes: Vec<Node<W>>,
    known: HashMap<Rc<str>, usize>,
    report: Report,
}

/// Explores all states of the world that `start` makes. Prints what it found.
///
/// # Panics
/// With the shortest path to a state in which a property does not hold, or in which nothing can happen though it is not
/// over (I2).
pub(crate) fn explore<W: World>(name: &str, start: &dyn Fn() -> W) -> Report {
    let mut explorer = Explorer {
        start,
        nodes: Vec::new(),
        known: HashMap::new(),
        report: Report::default(),
    };
    explorer.enter(start(), None);
    let mut next = 0;
    while next < explorer.nodes.len() {
        explorer.expand(next);
        next += 1;
    }
    let report = Report {
        states: explorer.nodes.len(),
        depth: explorer.nodes.iter().map(|node| node.depth).max().unwrap_or(0),
        cycle: explorer.cycle().map(|node| format!("{:?}", explorer.path(node))),
        ..explorer.report
    };
    println!(
        "{name}: {} states, {} edges, depth {}",
        report.states, report.edges, report.depth
    );
    report
}

impl<W: World> Explorer<'_, W> {
    /// The moves that lead to a state.
    fn path(&self, mut node: usize) -> Vec<W::Move> {
        let mut path = Vec::new();
        while let Some((from, step)) = &self.nodes[node].from {
            path.push(step.clone());
            node = *from;
        }
        path.reverse();
        path
    }

    fn play(&self, path: &[W::Move]) -> W {
        let mut world = (self.start)();
        for step in path {
            // It held when the path was found.
            let _ = world.make(step);
        }
        world
    }

    fn expand(&mut self, node: usize) {
        let path = self.path(node);
        let world = self.nodes[node].world.take().unwrap_or_else(|| self.play(&path));
        let moves = world.moves();
        assert!(
            world.is_over() || !moves.is_empty(),
            "I2: nothing can happen after {path:?}"
        );
        let mut world = Some(world);
        for step in moves {
            let mut world = world.take().unwrap_or_else(|| self.play(&path));
            assert_eq!(
                *world.state(),
                *self.nodes[node].state,
                "not the same again after {path:?}"
            );
            let guard = OnPanic(&path, &step);
            let made = world.make(&step).and_then(|()| world.check());
            std::mem::forget(guard);
            if let Err(wrong) = made {
                panic!("{wrong}\nafter {path:?}, {step:?}");
            }
            self.report.edges += 1;
            for mark in world.marks() {
                *self.report.marks.entry(mark).or_default() += 1;
            }
            let reached = self.enter(world, Some((node, step)));
            self.nodes[node].next.push(reached);
        }
    }

    fn enter(&mut self, world: W, from: Option<(usize, W::Move)>) -> usize {
        let state: Rc<str> = world.state().into();
        if let Some(known) = self.known.get(&state) {
            return *known;
        }
        let node = self.nodes.len();
        let depth = from.as_ref().map_or(0, |(from, _)| self.nodes[*from].depth + 1);
        self.known.insert(Rc::clone(&state), node);
        self.nodes.push(Node {
            from,
            world: Some(world),
            depth,
            state,
            next: Vec::new(),
        });
        node
    }

    /// A state on or before a cycle. Who takes away what leads nowhere, again and again, is left with these.
    fn cycle(&self) -> Option<usize> {
        let mut from = vec![Vec::new(); self.nodes.len()];
        for (node, Node { next, .. }) in self.nodes.iter().enumerate() {
            for next in next {
                from[*next].push(node);
            }
        }
        let mut left: Vec<_> = self.nodes.iter().map(|node| node.next.len()).collect();
        let mut ends: VecDeque<_> = (0..left.len()).filter(|node| left[*node] == 0).collect();
        while let Some(end) = ends.pop_front() {
            for node in &from[end] {
                left[*node] -= 1;
                if left[*node] == 0 {
                    ends.push_back(*node);
                }
            }
        }
        left.iter().rposition(|left| *left > 0)
    }
}

impl Report {
    /// Whatever happens, it comes to an end.
    ///
    /// # Panics
    /// If something can happen again and again.
    pub(crate) fn ends(&self) {
        assert!(self.cycle.is_none(), "I2: without end, after {:?}", self.cycle);
    }

    /// Each of these was the case somewhere.
    ///
    /// # Panics
    /// If one was not.
    pub(crate) fn sometimes(&self, marks: &[&str]) {
        for mark in marks {
            assert!(self.marks.contains_key(*mark), "never {mark:?}, of {:?}", self.marks);
        }
    }
}

/// Says after which moves a panic came.
struct OnPanic<'a, M: Debug>(&'a [M], &'a M);

impl<M: Debug> Drop for OnPanic<'_, M> {
    fn drop(&mut self) {
        eprintln!("panicked after {:?}, {:?}", self.0, self.1);
    }
}
