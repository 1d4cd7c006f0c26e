//! The schedules that are played through.

use shuttle::scheduler::{Schedule, Scheduler, Task, TaskId};
use shuttle::{Config, Runner};

/// All schedules with at most so many preemptions, each once: switches away from a thread that could go on. Where a
/// thread waits or ends, any other may follow at no cost. Most races need one or two.
struct Bounded {
    preemptions: usize,
    /// Where there was a choice in the present schedule, and which was taken.
    choices: Vec<Choice>,
    begun: bool,
    step: usize,
    left: usize,
}

struct Choice {
    tasks: Vec<TaskId>,
    taken: usize,
}

impl Scheduler for Bounded {
    fn new_execution(&mut self) -> Option<Schedule> {
        if self.begun {
            while self.choices.pop_if(|last| last.taken + 1 == last.tasks.len()).is_some() {}
            self.choices.last_mut()?.taken += 1;
        }
        self.begun = true;
        self.step = 0;
        self.left = self.preemptions;
        Some(Schedule::new(0))
    }

    fn next_task(&mut self, runnable: &[&Task], current: Option<TaskId>, yields: bool) -> Option<TaskId> {
        let can_go_on = current.filter(|current| !yields && runnable.iter().any(|task| task.id() == *current));
        if self.step == self.choices.len() {
            let others = runnable
                .iter()
                .map(|task| task.id())
                .filter(|task| Some(*task) != can_go_on);
            let others = others.take(if can_go_on.is_some() && self.left == 0 {
                0
            } else {
                usize::MAX
            });
            self.choices.push(Choice {
                tasks: can_go_on.into_iter().chain(others).collect(),
                taken: 0,
            });
        }
        let choice = &self.choices[self.step];
        let next = choice.tasks[choice.taken];
        self.step += 1;
        self.left -= usize::from(can_go_on.is_some_and(|current| current != next));
        Some(next)
    }

    fn next_u64(&mut self) -> u64 {
        0
    }
}

/// Plays `test` by all schedules with at most so many preemptions, of which there are `at_least` so many. Prints how
/// many.
///
/// # Panics
/// If `test` does, or if all its threads wait; with the schedule.
pub(crate) fn play(name: &str, preemptions: usize, at_least: usize, test: impl Fn() + Send + Sync + 'static) {
    let scheduler = Bounded {
        preemptions,
        choices: Vec::new(),
        begun: false,
        step: 0,
        left: 0,
    };
    let mut config = Config::new();
    config.stack_size = 0x10_0000;
    config.silence_warnings = true;
    let schedules = Runner::new(scheduler, config).run(test);
    println!("{name}: {schedules} schedules with at most {preemptions} preemptions");
    assert!(schedules >= at_least, "the threads hardly meet");
}
