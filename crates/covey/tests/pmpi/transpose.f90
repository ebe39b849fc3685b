! The transposition of a matrix in Fortran, by the module that the preprocessor names: sent by rows, which
! lie scattered in Fortran, and received as it lies in memory; and the other way round. Every element is
! checked. With requests as well as without. usage: transpose N [TIMES]
program transpose_it
#ifdef USE_F08
  use mpi_f08
#elif defined(USE_MPIF_H)
  implicit none
  include 'mpif.h'
#else
  use mpi
#endif
#ifndef USE_MPIF_H
  implicit none
#endif
#ifdef USE_F08
  type(MPI_Datatype) :: row, rows
  type(MPI_Request) :: request
  type(MPI_Status) :: status
#else
  integer :: row, rows, request, status(MPI_STATUS_SIZE)
#endif
  integer(kind=MPI_ADDRESS_KIND) :: stride
  integer :: rank, n, times, wrong, way, i, j, got, error
  real, allocatable :: matrix(:,:)
  double precision :: begun
  double precision, allocatable :: took(:)
  character(len=32) :: argument
  logical :: scattered

  n = 100
  times = 0
  if (command_argument_count() > 0) then
     call get_command_argument(1, argument)
     read (argument, *) n
  end if
  if (command_argument_count() > 1) then
     call get_command_argument(2, argument)
     read (argument, *) times
  end if
  call MPI_Init(error)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, error)
  allocate(matrix(n, n), took(0:times))
  stride = 4
  call MPI_Type_vector(n, 1, n, MPI_REAL, row, error)
  call MPI_Type_create_hvector(n, 1, stride, row, rows, error)
  call MPI_Type_commit(rows, error)
  call MPI_Type_free(row, error)
  wrong = 0
  do way = 0, 3
     if (rank > 1) exit
     scattered = mod(way, 2) == rank
     do j = 1, n
        do i = 1, n
           matrix(i, j) = -1
           if (rank == 0) matrix(i, j) = real((j - 1) * n + i)
        end do
     end do
     do i = 0, times
        begun = MPI_Wtime()
        if (rank == 0) then
           if (way < 2) then
              if (scattered) then
                 call MPI_Send(matrix, 1, rows, 1, 0, MPI_COMM_WORLD, error)
              else
                 call MPI_Send(matrix, n * n, MPI_REAL, 1, 0, MPI_COMM_WORLD, error)
              end if
           else
              if (scattered) then
                 call MPI_Isend(matrix, 1, rows, 1, 0, MPI_COMM_WORLD, request, error)
              else
                 call MPI_Isend(matrix, n * n, MPI_REAL, 1, 0, MPI_COMM_WORLD, request, error)
              end if
              call MPI_Wait(request, MPI_STATUS_IGNORE, error)
           end if
           call MPI_Recv(matrix, 0, MPI_REAL, 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE, error)
        else
           if (way < 2) then
              if (scattered) then
                 call MPI_Recv(matrix, 1, rows, 0, 0, MPI_COMM_WORLD, status, error)
              else
                 call MPI_Recv(matrix, n * n, MPI_REAL, 0, 0, MPI_COMM_WORLD, status, error)
              end if
           else
              if (scattered) then
                 call MPI_Irecv(matrix, 1, rows, 0, 0, MPI_COMM_WORLD, request, error)
              else
                 call MPI_Irecv(matrix, n * n, MPI_REAL, 0, 0, MPI_COMM_WORLD, request, error)
              end if
              call MPI_Wait(request, status, error)
           end if
           call MPI_Send(matrix, 0, MPI_REAL, 0, 1, MPI_COMM_WORLD, error)
        end if
        took(i) = (MPI_Wtime() - begun) * 1d6
     end do
     if (rank == 1) then
        if (scattered) then
           call MPI_Get_count(status, rows, got, error)
           if (got /= 1) wrong = wrong + 1
        end if
        call MPI_Get_elements(status, MPI_REAL, got, error)
        if (got /= n * n) wrong = wrong + 1
        do j = 1, n
           do i = 1, n
              if (matrix(i, j) /= real((i - 1) * n + j)) wrong = wrong + 1
           end do
        end do
     else if (times > 0 .and. way < 2) then
        call sort(took(1:times))
        argument = 'contiguous-scattered'
        if (scattered) argument = 'scattered-contiguous'
        write (*, '(A,1X,I0,3(1X,F0.2))') trim(argument), n, took(1), took(1 + times / 10), took(1 + times / 2)
     end if
  end do
  if (rank == 1) then
     if (wrong == 0) then
        print '(A)', 'right'
     else
        print '(A,1X,I0)', 'wrong', wrong
     end if
  end if
  call MPI_Type_free(rows, error)
  call MPI_Finalize(error)
  if (wrong /= 0) stop 1
contains
  subroutine sort(values)
    double precision, intent(inout) :: values(:)
    double precision :: value
    integer :: a, b
    do a = 2, size(values)
       value = values(a)
       b = a - 1
       do while (b >= 1)
          if (values(b) <= value) exit
          values(b + 1) = values(b)
          b = b - 1
       end do
       values(b + 1) = value
    end do
  end subroutine sort
end program transpose_it
